from __future__ import annotations

import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from .conftest import ARGUMENTS, CALL


@pytest.fixture
def chat(base_url):
    return ChatOpenAI(model="default", base_url=base_url, api_key=SecretStr("none"), max_retries=0)


@tool
def get_weather(city: str, days: list[int]) -> str:
    """Look at the sky."""
    return "sunny"


def test_an_answer_and_a_stream(chat):
    assert chat.invoke("Hello").content == "Hello"
    pieces = list(chat.stream("Hello"))
    assert "".join(piece.content for piece in pieces) == "Hello"


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


def test_usage(chat):
    assert chat.invoke("Hello").usage_metadata["output_tokens"] > 0


@pytest.mark.anyio
async def test_many_at_once(chat):
    texts = [f"text number {number}" for number in range(8)]
    assert [message.content for message in await chat.abatch(texts)] == texts
