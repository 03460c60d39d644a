from __future__ import annotations

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from .clients import LONG, await_idle
from .conftest import ARGUMENTS, CALL

APIS = {"chat completions": False, "responses": True}


def over(base_url, responses):
    return ChatOpenAI(
        model="default",
        base_url=base_url,
        api_key=SecretStr("none"),
        max_retries=0,
        stream_usage=True,
        use_responses_api=responses,
        output_version="v1",
    )


@pytest.fixture(params=APIS.values(), ids=list(APIS))
def chat(request, base_url):
    return over(base_url, request.param)


@tool
def get_weather(city: str, days: list[int]) -> str:
    """Look at the sky."""
    return f"sunny in {city} on {days}"


def test_an_answer_and_a_stream(chat):
    assert chat.invoke("Hello").text == "Hello"
    pieces = list(chat.stream("Hello"))
    assert "".join(piece.text for piece in pieces) == "Hello"


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
    result = get_weather.invoke(called.tool_calls[0])
    assert isinstance(result, ToolMessage)
    last = bound.invoke([asked, called, result])
    assert (last.text, last.tool_calls) == ("sunny in Zürich on [1, 2]", [])


def test_usage(chat):
    assert chat.invoke("Hello").usage_metadata["output_tokens"] > 0
    (last,) = (piece for piece in chat.stream("Hello") if piece.usage_metadata)
    assert last.usage_metadata["output_tokens"] > 0


def test_errors_are_the_sdks_own(chat):
    with pytest.raises(openai.BadRequestError) as wrong:
        chat.invoke("x", temperature=3)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        list(chat.stream("x", model="nope"))


def test_a_stream_that_is_left_frees_the_engine(chat, server):
    stream = chat.stream(LONG)
    next(stream)
    stream.close()
    await_idle(server)


@pytest.mark.anyio
async def test_many_at_once(base_url):
    texts = [f"text number {number}" for number in range(8)]
    for responses in APIS.values():  # in one test: the package keeps its connections, and they belong to one event loop
        assert [message.text for message in await over(base_url, responses).abatch(texts)] == texts
