"""Whatever a client sends, the answer is never a 5xx and always Anthropic's shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_protocols.anthropic import AnthropicFrontend
from vllm_mlx_protocols.anthropic.schema import Block, CountTokensRequest, MessagesRequest, ToolDefinition

from .fuzzing import BYTES, TEXT, VALUES, client_of, post

TYPES = st.sampled_from(
    ["text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result", "x"]
)
LIKELY = {
    "text": TEXT,
    "thinking": TEXT,
    "id": TEXT,
    "name": TEXT,
    "tool_use_id": TEXT,
    "is_error": st.booleans(),
    "input": st.dictionaries(TEXT, VALUES, max_size=2),
    "source": TEXT | st.fixed_dictionaries({"type": st.sampled_from(["text", "content"])}, optional={"data": TEXT}),
}


def blocks(content):
    optional = {name: VALUES for name in Block.model_fields if name != "type"} | LIKELY | {"content": content}
    return st.fixed_dictionaries({"type": TYPES}, optional=optional)


BLOCK = blocks(TEXT | st.lists(blocks(TEXT), max_size=2))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": TEXT | st.lists(BLOCK, max_size=3)}
)
TOOL = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "g"]), "input_schema": st.dictionaries(TEXT, VALUES, max_size=2)},
    optional={name: VALUES for name in ToolDefinition.model_fields if name not in ("name", "input_schema")},
)
KNOWN = {"model": st.just("default"), "messages": st.lists(MESSAGE, min_size=1, max_size=3)}


def bodies(schema, **known):
    others = dict.fromkeys(set(schema.model_fields) - set(known), VALUES) | {"tools": st.lists(TOOL, max_size=2)}
    return st.fixed_dictionaries(known, optional=others) | VALUES


@pytest.fixture(scope="module")
def client():
    with client_of(AnthropicFrontend) as client:
        yield client


def check(client, path, body):
    response = post(client, path, body)
    if response.status_code >= 400:
        said = response.json()
        assert list(said) == ["type", "error", "request_id"]
        assert set(said["error"]) - {"details"} == {"type", "message"}
        assert isinstance(said["error"]["message"], str)
    else:
        response.content.decode()


@settings(max_examples=200, deadline=None)
@given(body=bodies(MessagesRequest, max_tokens=st.just(9), **KNOWN))
def test_any_body(client, body):
    check(client, "/v1/messages", body)


@settings(max_examples=150, deadline=None)
@given(messages=KNOWN["messages"], tools=st.lists(TOOL, max_size=1))
def test_any_messages(client, messages, tools):
    body = {"model": "default", "max_tokens": 9, "messages": messages, "tools": tools}
    check(client, "/v1/messages", body)


@settings(max_examples=60, deadline=None)
@given(body=bodies(CountTokensRequest, **KNOWN))
def test_any_body_to_count(client, body):
    check(client, "/v1/messages/count_tokens", body)


@settings(max_examples=60, deadline=None)
@given(body=BYTES)
def test_any_bytes(client, body):
    check(client, "/v1/messages", body)
