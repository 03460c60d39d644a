"""Whatever a client sends, the answer is never a 5xx but for what is refused as such, and always Ollama's shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_protocols.ollama import OllamaFrontend
from vllm_mlx_protocols.ollama.options import Options
from vllm_mlx_protocols.ollama.schema import ChatRequest, GenerateRequest, Message, NamedRequest

from .fuzzing import BYTES, TEXT, VALUES, client_of, post


def fields(schema, **likely):
    """Objects with any of a schema's fields, whose values are of the likely kind."""
    return st.fixed_dictionaries({}, optional={name: likely.get(name, VALUES) for name in schema.model_fields})


CALL = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXT, "arguments": VALUES})})
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": TEXT},
    optional={"tool_calls": st.lists(CALL, max_size=2), "thinking": TEXT, "tool_name": TEXT, "tool_call_id": TEXT},
) | fields(Message)
OPTIONS = fields(Options, num_predict=st.integers(-3, 9), seed=st.integers(), stop=st.lists(TEXT, max_size=2))
LIKELY = {
    "model": st.just("default"),
    "messages": st.lists(MESSAGE, max_size=3),
    "options": OPTIONS,
    "think": st.sampled_from([None, True, False, "low", "x"]),
    "prompt": TEXT,
    "system": TEXT,
    "format": st.sampled_from([None, "", "json"]),
}


@pytest.fixture(scope="module")
def client():
    with client_of(OllamaFrontend) as client:
        yield client


def check(client, path, body):
    response = post(client, path, body)
    lines = [json.loads(line) for line in response.text.splitlines()]
    if response.status_code >= 400:
        assert [list(line) for line in lines] == [["error"]]
        assert isinstance(lines[0]["error"], str)
    else:
        assert all("error" not in line for line in lines)


@settings(max_examples=200, deadline=None)
@given(body=fields(ChatRequest, **LIKELY) | VALUES)
def test_any_chat(client, body):
    check(client, "/api/chat", body)


@settings(max_examples=150, deadline=None)
@given(messages=LIKELY["messages"], options=OPTIONS)
def test_any_messages(client, messages, options):
    body = {"model": "default", "messages": messages, "options": options, "stream": False}
    check(client, "/api/chat", body)


@settings(max_examples=150, deadline=None)
@given(body=fields(GenerateRequest, **LIKELY) | VALUES)
def test_any_prompt(client, body):
    check(client, "/api/generate", body)


@settings(max_examples=60, deadline=None)
@given(body=fields(NamedRequest, model=TEXT | st.just("default")) | VALUES)
def test_any_model_to_show(client, body):
    check(client, "/api/show", body)


@settings(max_examples=60, deadline=None)
@given(body=BYTES)
def test_any_bytes(client, body):
    check(client, "/api/chat", body)
