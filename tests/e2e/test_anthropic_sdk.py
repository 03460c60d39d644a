"""Anthropic's own Python client against a real server."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic, AsyncAnthropic

from .conftest import ARGUMENTS, CALL, WEATHER

TEXT = "Grüße 👩‍👩‍👧 日本語!"
TOOL = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}
ASK: dict[str, Any] = {"model": "default", "max_tokens": 512}


@pytest.fixture
def client(server):
    with Anthropic(base_url=server, api_key="none", max_retries=0) as client:
        yield client


def user(content):
    return {"role": "user", "content": content}


def test_a_message(client):
    message = client.messages.create(**ASK, messages=[user(TEXT)], system="Echo.", metadata={"user_id": "u"})
    assert [block.text for block in message.content] == [TEXT]
    assert (message.role, message.model, message.stop_reason) == ("assistant", "scripted", "end_turn")
    assert message.usage.output_tokens > 0
    assert message._request_id


def test_a_stream_says_the_same(client):
    with client.messages.stream(**ASK, messages=[user(TEXT)]) as stream:
        assert "".join(stream.text_stream) == TEXT
        final = stream.get_final_message()
    assert (final.content[0].text, final.stop_reason) == (TEXT, "end_turn")
    whole = client.messages.create(**ASK, messages=[user(TEXT)])
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_thoughts_come_first_and_are_signed(client):
    said = "#open-think\nplan it\n</think>\n\nThe answer."
    whole = client.messages.create(**ASK, messages=[user(said)], thinking={"type": "adaptive"})
    with client.messages.stream(
        **ASK, messages=[user(said)], thinking={"type": "enabled", "budget_tokens": 256}
    ) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        thought, answer = message.content
        assert (thought.type, answer.type) == ("thinking", "text")
        assert thought.thinking.strip() == "plan it"
        assert thought.signature
        assert answer.text.strip() == "The answer."
    back = [user(said), {"role": "assistant", "content": streamed.content}, user("Thanks")]
    assert client.messages.create(**ASK, messages=back).content[0].text == "Thanks"


def test_the_tool_runner_calls_until_it_has_an_answer(client):
    """It asks for a conversation kept by the server, and goes on without one."""
    asked: list[Any] = []

    @anthropic.beta_tool
    def get_weather(city: str, days: list[int] | None = None) -> str:
        """Look at the sky."""
        asked.append((city, days))
        return "sunny"

    said = [user("#echo-results\n" + CALL)]
    runner = client.beta.messages.tool_runner(**ASK, tools=[get_weather], messages=said)
    assert runner.until_done().content[0].text == "sunny"
    assert asked == [(ARGUMENTS["city"], ARGUMENTS.get("days"))]


def test_a_loop_of_calls_in_a_stream(client):
    messages = [user("Look.\n" + CALL)]
    with client.messages.stream(**ASK, messages=messages, tools=[TOOL]) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    said, call = message.content
    assert said.text.strip() == "Look."
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", ARGUMENTS)
    assert json.loads("".join(pieces)) == ARGUMENTS
    assert message.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    messages += [
        {"role": "assistant", "content": message.content},
        user([result, {"type": "text", "text": "Thanks"}]),
    ]
    assert client.messages.create(**ASK, messages=messages, tools=[TOOL]).content[0].text == "Thanks"


def test_a_call_in_one_piece_and_a_demand_for_one(client):
    choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    message = client.messages.create(**ASK, messages=[user(CALL + CALL)], tools=[TOOL], tool_choice=choice)
    assert [block.input for block in message.content] == [ARGUMENTS]
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**ASK, messages=[user("No.")], tools=[TOOL], tool_choice={"type": "any"})


def test_a_stop_sequence_ends_the_message_and_is_reported(client):
    message = client.messages.create(**ASK, messages=[user("one STOP two")], stop_sequences=["STOP"])
    assert message.content[0].text == "one "
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "STOP")


def test_max_tokens(client):
    message = client.messages.create(model="default", max_tokens=3, messages=[user("abcdef")])
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 3)


def test_the_beginning_of_the_answer_is_continued(client):
    turns = [user("abcdef"), {"role": "assistant", "content": "abc"}]
    assert client.messages.create(**ASK, messages=turns).content[0].text == "def"


def test_the_count_is_what_generating_reports(client):
    prompt = {"messages": [user(TEXT)], "system": "Echo.", "tools": [TOOL], "thinking": {"type": "disabled"}}
    counted = client.messages.count_tokens(model="default", **prompt)
    for _ in range(2):
        usage = client.messages.create(**ASK, **prompt).usage
        assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens


def test_the_beta_client_with_what_a_coding_agent_sends(client):
    def ask(cch):
        return client.beta.messages.create(
            **ASK,
            betas=["context-management-2025-06-27", "interleaved-thinking-2025-05-14"],
            context_management={"edits": []},
            system=[
                {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"},
                {"type": "text", "text": "You code. " * 50, "cache_control": {"type": "ephemeral"}},
            ],
            messages=[user("First"), {"role": "system", "content": "Be brief."}, user("Hello")],
        )

    first, second = ask("a1b2c"), ask("00000")
    assert "Hello" in first.content[0].text
    assert second.usage.cache_read_input_tokens > 400


def test_errors_are_those_of_the_client(client):
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="none", max_tokens=5, messages=[user("Hi")])
    body: Any = missing.value.body
    assert body["error"]["type"] == "not_found_error"
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]"):
        client.messages.create(**ASK, messages=[user([image])])
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\]\.type"):
        client.messages.create(
            **ASK, messages=[user("Hi")], tools=[{"type": "web_search_20250305", "name": "web_search"}]
        )


def test_a_stream_that_is_left_early_frees_its_place(client):
    for _ in range(3):
        with client.messages.stream(**ASK, messages=[user("word " * 90)]) as stream:
            assert next(iter(stream.text_stream))
    assert client.messages.create(**ASK, messages=[user("still here")]).content[0].text == "still here"


@pytest.mark.anyio
async def test_the_asynchronous_client(server):
    async with (
        AsyncAnthropic(base_url=server, api_key="none", max_retries=0) as client,
        client.messages.stream(**ASK, messages=[user(TEXT)]) as stream,
    ):
        assert "".join([text async for text in stream.text_stream]) == TEXT


def test_the_server_is_well_afterwards(server):
    assert httpx.get(f"{server}/health").json()["status"] == "ok"
