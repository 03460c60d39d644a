"""Whatever a client sends, the answer is never a 5xx and always OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_protocols.responses.frontend import ResponsesFrontend
from vllm_mlx_protocols.responses.schema import ResponsesRequest

from .fuzzing import BYTES, TEXT, VALUES, check_openai, client_of, post

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
    with client_of(ResponsesFrontend) as client:
        yield client


def check(response):
    check_openai(response)
    if response.status_code < 400:
        text = response.content.decode()
        assert "response.failed" not in text
        assert response.headers["content-type"].startswith("text/event-stream") or json.loads(text)["id"]


@settings(max_examples=300, deadline=None)
@given(body=BODIES)
def test_any_body(client, body):
    check(post(client, "/v1/responses", body))


@settings(max_examples=80, deadline=None)
@given(body=BYTES)
def test_any_bytes(client, body):
    check(post(client, "/v1/responses", body))


@settings(max_examples=60, deadline=None)
@given(items=st.lists(ITEM, min_size=1, max_size=3), order=st.sampled_from(["asc", "desc", "x"]))
def test_whatever_was_stored_can_be_read_again(client, items, order):
    items.append({"role": "user", "content": "Hi"})
    made = post(client, "/v1/responses", {"input": items})
    if made.status_code == 200:
        path = f"/v1/responses/{made.json()['id']}"
        assert client.get(path).json() == made.json()
        check_list = client.get(f"{path}/input_items", params={"order": order})
        assert check_list.status_code == (400 if order == "x" else 200)
        again = {"input": "More", "previous_response_id": made.json()["id"]}
        assert client.post("/v1/responses", json=again).status_code == 200
