"""Whatever a client sends, the answer is never a 5xx and always OpenAI's shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_protocols.openai import OpenAIFrontend
from vllm_mlx_protocols.openai.schema import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)

from .fuzzing import BYTES, TEXT, VALUES, check_openai, client_of, post

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
    with client_of(OpenAIFrontend) as client:
        yield client


@settings(max_examples=150, deadline=None)
@given(body=bodies(ChatCompletionRequest, messages=st.lists(MESSAGE, min_size=1, max_size=3)))
def test_any_chat_body(client, body):
    check_openai(post(client, "/v1/chat/completions", body))


@settings(max_examples=100, deadline=None)
@given(body=bodies(CompletionRequest, prompt=TEXT | st.lists(TEXT) | st.lists(st.integers(0, 9))))
def test_any_completion_body(client, body):
    check_openai(post(client, "/v1/completions", body))


@settings(max_examples=100, deadline=None)
@given(body=bodies(TokenizeRequest) | bodies(TokenizeRequest, messages=st.lists(MESSAGE, min_size=1, max_size=3)))
def test_any_tokenize_body(client, body):
    check_openai(post(client, "/v1/tokenize", body))


@settings(max_examples=60, deadline=None)
@given(body=bodies(DetokenizeRequest, tokens=st.lists(st.integers(-1, 2**31))))
def test_any_detokenize_body(client, body):
    check_openai(post(client, "/v1/detokenize", body))


@settings(max_examples=80, deadline=None)
@given(body=BYTES)
def test_any_bytes(client, body):
    check_openai(post(client, "/v1/chat/completions", body))
