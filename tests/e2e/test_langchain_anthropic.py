from __future__ import annotations

import anthropic
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from pydantic import SecretStr

from .clients import LONG, await_idle
from .conftest import ARGUMENTS, CALL


@pytest.fixture
def chat(server):
    return ChatAnthropic(
        model_name="default",
        base_url=server,
        api_key=SecretStr("none"),
        max_retries=0,
        max_tokens_to_sample=50_000,
        timeout=60,
        stop=None,
    )


@tool
def get_weather(city: str, days: list[int]) -> str:
    """Look at the sky."""
    return f"sunny in {city} on {days}"


def test_an_answer_and_a_stream(chat):
    assert chat.invoke("Hello").text == "Hello"
    assert "".join(piece.text for piece in chat.stream("Hello")) == "Hello"


def test_thoughts_are_blocks_of_their_own(chat):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    first, second = chat.invoke("#open-think\nHm.</think>Yes.", thinking=thinking).content
    assert (first["type"], first["thinking"]) == ("thinking", "Hm.")
    assert (second["type"], second["text"]) == ("text", "Yes.")


def test_tool_calls_whole_and_streamed(chat):
    bound = chat.bind_tools([get_weather])
    whole = bound.invoke(CALL)
    first, *rest = bound.stream(CALL)
    for piece in rest:
        first += piece
    for message in (whole, first):
        (call,) = message.tool_calls
        assert (call["name"], call["args"]) == ("get_weather", ARGUMENTS)
        assert call["id"]
        assert not message.invalid_tool_calls


def test_a_turn_goes_on_with_the_tools_result(chat):
    bound = chat.bind_tools([get_weather])
    asked = HumanMessage(f"#echo-results\n{CALL}")
    called = bound.invoke([asked])
    last = bound.invoke([asked, called, get_weather.invoke(called.tool_calls[0])])
    assert (last.text, last.tool_calls) == ("sunny in Zürich on [1, 2]", [])


def test_usage_is_the_same_streamed(chat):
    whole = chat.invoke("Hello").usage_metadata
    first, *rest = chat.stream("Hello")
    for piece in rest:
        first += piece
    assert whole["output_tokens"] > 0
    assert [first.usage_metadata[name] for name in ("input_tokens", "output_tokens")] == [
        whole[name] for name in ("input_tokens", "output_tokens")
    ]


def test_errors_are_the_sdks_own(chat):
    with pytest.raises(anthropic.BadRequestError) as wrong:
        chat.invoke("x", temperature=3)
    assert "temperature" in wrong.value.message
    with pytest.raises(anthropic.NotFoundError):
        list(chat.stream("x", model="nope"))


def test_a_stream_that_is_left_frees_the_engine(chat, server):
    stream = chat.stream(LONG)
    next(stream)
    stream.close()
    await_idle(server)
