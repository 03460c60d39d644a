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
from vllm_mlx_protocols.openai import OpenAIFrontend
from vllm_mlx_protocols.openai.schema import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)

TEXT = st.text(st.characters(codec=None), max_size=8)  # surrogates included
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PART = st.fixed_dictionaries({}, optional={"type": st.sampled_from(["text", "image_url", 1]), "text": VALUES})
CALL = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXT}, optional={"arguments": VALUES})})
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "x", None])},
    optional={"content": TEXT | st.lists(PART, max_size=3) | VALUES, "tool_calls": st.lists(CALL, max_size=2) | VALUES},
)


def bodies(model, **known):
    others = dict.fromkeys(set(model.model_fields) - set(known), VALUES)
    return st.fixed_dictionaries(known, optional=others) | VALUES


@pytest.fixture(scope="module")
def client():
    engine = ScriptedEngine(text_reply("ok"))
    chosen = Settings()
    app = assemble(engine, [OpenAIFrontend(engine, chosen)], chosen)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=True) as client:
        yield client


def check(client, path, content):
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        body = response.json()
        assert list(body) == ["error"]
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert isinstance(body["error"]["message"], str)
    else:
        response.content.decode()


@settings(max_examples=150, deadline=None)
@given(body=bodies(ChatCompletionRequest, messages=st.lists(MESSAGE, min_size=1, max_size=3)))
def test_any_chat_body(client, body):
    check(client, "/v1/chat/completions", json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(body=bodies(CompletionRequest, prompt=TEXT | st.lists(TEXT) | st.lists(st.integers(0, 9))))
def test_any_completion_body(client, body):
    check(client, "/v1/completions", json.dumps(body).encode())


@settings(max_examples=100, deadline=None)
@given(body=bodies(TokenizeRequest) | bodies(TokenizeRequest, messages=st.lists(MESSAGE, min_size=1, max_size=3)))
def test_any_tokenize_body(client, body):
    check(client, "/v1/tokenize", json.dumps(body).encode())


@settings(max_examples=60, deadline=None)
@given(body=bodies(DetokenizeRequest, tokens=st.lists(st.integers(-1, 2**31))))
def test_any_detokenize_body(client, body):
    check(client, "/v1/detokenize", json.dumps(body).encode())


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=40) | st.text('{}[]":,\\ud8', max_size=40).map(str.encode))
def test_any_bytes(client, body):
    check(client, "/v1/chat/completions", body)
