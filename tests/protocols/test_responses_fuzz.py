"""Whatever a client sends, the answer is never a 5xx and always OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Settings
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, text_reply
from vllm_mlx_protocols.responses.frontend import ResponsesFrontend
from vllm_mlx_protocols.responses.schema import ResponsesRequest

TEXT = st.text(st.characters(codec=None), max_size=8)  # surrogates included
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(
    [
        *("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("reasoning", "item_reference", "web_search_call", "", None, 1),
    ]
)
PART = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["input_text", "refusal", "input_image", 1]), "text": TEXT | VALUES}
)
CONTENT = TEXT | st.lists(PART, max_size=3) | VALUES
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "id": TEXT | VALUES,
        "role": st.sampled_from(["user", "assistant", "x", None]),
        "content": CONTENT,
        "output": CONTENT,
        "call_id": TEXT,
        "name": TEXT,
        "arguments": TEXT | VALUES,
        "input": TEXT,
        "encrypted_content": TEXT,
        "summary": VALUES,
    },
)
TOOL = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "web_search", None])},
    optional={"name": TEXT, "parameters": VALUES, "format": VALUES, "strict": VALUES},
)
KNOWN = {
    "input": TEXT | st.lists(ITEM, max_size=3),
    "tools": st.none() | st.lists(TOOL, max_size=2),
    "metadata": st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    "instructions": st.none() | TEXT,
    "stream": st.sampled_from([None, True]),
}
OTHERS = st.dictionaries(st.sampled_from(sorted(set(ResponsesRequest.model_fields) - set(KNOWN))), VALUES, max_size=3)
BODIES = st.tuples(st.fixed_dictionaries(KNOWN), OTHERS).map(lambda both: {**both[0], **both[1]}) | VALUES


@pytest.fixture(scope="module")
def client():
    engine = ScriptedEngine(text_reply("ok"))
    chosen = Settings()
    app = assemble(engine, [ResponsesFrontend(engine, chosen)], chosen)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=True) as client:
        yield client


def check(response):
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        body = response.json()
        assert list(body) == ["error"]
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert isinstance(body["error"]["message"], str)
    else:
        text = response.content.decode()
        assert "response.failed" not in text
        assert response.headers["content-type"].startswith("text/event-stream") or json.loads(text)["id"]


@settings(max_examples=300, deadline=None)
@given(body=BODIES)
def test_any_body(client, body):
    check(client.post("/v1/responses", content=json.dumps(body), headers={"content-type": "application/json"}))


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=40) | st.text('{}[]":,\\ud8', max_size=40).map(str.encode))
def test_any_bytes(client, body):
    check(client.post("/v1/responses", content=body, headers={"content-type": "application/json"}))


@settings(max_examples=60, deadline=None)
@given(items=st.lists(ITEM, min_size=1, max_size=3), order=st.sampled_from(["asc", "desc", "x"]))
def test_whatever_was_stored_can_be_read_again(client, items, order):
    items.append({"role": "user", "content": "Hi"})
    made = client.post(
        "/v1/responses", content=json.dumps({"input": items}), headers={"content-type": "application/json"}
    )
    if made.status_code == 200:
        path = f"/v1/responses/{made.json()['id']}"
        assert client.get(path).json() == made.json()
        check_list = client.get(f"{path}/input_items", params={"order": order})
        assert check_list.status_code == (400 if order == "x" else 200)
        again = {"input": "More", "previous_response_id": made.json()["id"]}
        assert client.post("/v1/responses", json=again).status_code == 200
