from __future__ import annotations

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from .clients import LONG, await_idle
from .conftest import ARGUMENTS, CALL

APIS = ("chat completions", "responses", "messages")


def over(server, api):
    if api == "messages":
        return ChatAnthropic(
            model_name="default",
            base_url=server,
            api_key=SecretStr("none"),
            max_retries=0,
            max_tokens_to_sample=50_000,
            timeout=60,
            stop=None,
        )
    return ChatOpenAI(
        model="default",
        base_url=f"{server}/v1",
        api_key=SecretStr("none"),
        max_retries=0,
        stream_usage=True,
        use_responses_api=api == "responses",
        output_version="v1",
    )


@pytest.fixture(params=APIS)
def api(request):
    return request.param


@pytest.fixture
def chat(server, api):
    return over(server, api)


@tool
def get_weather(city: str, days: list[int]) -> str:
    """Look at the sky."""
    return f"sunny in {city} on {days}"


def joined(stream):
    first, *rest = stream
    for piece in rest:
        first += piece
    return first


def test_an_answer_and_a_stream(chat):
    assert chat.invoke("Hello").text == "Hello"
    assert "".join(piece.text for piece in chat.stream("Hello")) == "Hello"


def test_thoughts_are_blocks_of_their_own(server):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    chat = over(server, "messages")
    first, second = chat.invoke("#open-think\nHm.</think>Yes.", thinking=thinking).content
    assert (first["type"], first["thinking"]) == ("thinking", "Hm.")
    assert (second["type"], second["text"]) == ("text", "Yes.")


def test_tool_calls_whole_and_streamed(chat):
    bound = chat.bind_tools([get_weather])
    for message in (bound.invoke(CALL), joined(bound.stream(CALL))):
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


def test_usage_is_the_same_streamed(chat):
    whole, streamed = (message.usage_metadata for message in (chat.invoke("Hello"), joined(chat.stream("Hello"))))
    assert whole["output_tokens"] > 0
    for name in ("input_tokens", "output_tokens"):
        assert streamed[name] == whole[name]


def test_errors_are_the_sdks_own(chat, api):
    sdk = anthropic if api == "messages" else openai
    with pytest.raises(sdk.BadRequestError, match="temperature"):
        chat.invoke("x", temperature=3)
    with pytest.raises(sdk.NotFoundError):
        list(chat.stream("x", model="nope"))


def test_a_stream_that_is_left_frees_the_engine(chat, server):
    stream = chat.stream(LONG)
    next(stream)
    stream.close()
    await_idle(server)


@pytest.mark.anyio
async def test_many_at_once(server):
    texts = [f"text number {number}" for number in range(8)]
    for api in APIS:  # in one test: the packages keep their connections, and those belong to one event loop
        assert [message.text for message in await over(server, api).abatch(texts)] == texts
