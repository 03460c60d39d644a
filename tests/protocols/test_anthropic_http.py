from __future__ import annotations

import json

import pytest

from vllm_mlx_core.api import (
    EngineFailed,
    Output,
    ReasoningDelta,
    Settings,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, events_reply, text_reply
from vllm_mlx_protocols.anthropic import AnthropicFrontend
from vllm_mlx_protocols.anthropic.response import SIGNATURE
from vllm_mlx_protocols.anthropic.stream import MessageStreamEncoder

pytestmark = pytest.mark.anyio
BODY = {"model": "default", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
CALL = (ToolCallStart(0, "call_1", "f"), ToolCallArguments(0, '{"a":'), ToolCallArguments(0, "1}"), ToolCallEnd(0))


@pytest.fixture
async def client(engine):
    settings = Settings()
    async with connect(assemble(engine, [AnthropicFrontend(engine, settings)], settings)) as client:
        yield client


def finished(finish="stop", *, stop=None, cached=0, completion=4, thinking=0, events=()):
    usage = Usage(prompt_tokens=3, completion_tokens=completion, cached_tokens=cached, reasoning_tokens=thinking)
    return [Output(choice=0, events=events, finish=finish, stop=stop, usage=usage, cached_tokens=cached)]


async def whole(client, **fields):
    response = await client.post("/v1/messages", json={**BODY, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def stream(client, **fields):
    response = await client.post("/v1/messages", json={**BODY, "stream": True, **fields})
    assert response.status_code == 200, response.text
    return events_of(response.text)


def events_of(text):
    """The events of a stream, each of which must say its name twice."""
    assert text.endswith("\n\n")
    events = []
    for piece in text.split("\n\n")[:-1]:
        name, data = piece.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def shape(events):
    """Each event in short: what happens to which block."""
    return [
        (event["type"].removeprefix("content_block_"), event["index"]) if "index" in event else event["type"]
        for event in events
    ]


async def test_a_message(client, engine):
    engine.reply = text_reply("Hello")
    message = await whole(client)
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "scripted/model",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 6,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


async def test_a_message_with_thoughts_and_calls(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Look."), *CALL, finish="tool_calls")
    message = await whole(client)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        {"type": "text", "text": "Look."},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
    ]
    assert message["stop_reason"] == "tool_use"


async def test_the_blocks_of_a_stream_follow_each_other(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Look."), *CALL, finish="tool_calls")
    events = await stream(client)
    assert shape(events) == [
        "message_start",
        *(("start", 0), ("delta", 0), ("delta", 0), ("stop", 0)),
        *(("start", 1), ("delta", 1), ("stop", 1)),
        *(("start", 2), ("delta", 2), ("delta", 2), ("stop", 2)),
        "message_delta",
        "message_stop",
    ]
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": SIGNATURE},
        {"type": "text_delta", "text": "Look."},
        {"type": "input_json_delta", "partial_json": '{"a":'},
        {"type": "input_json_delta", "partial_json": "1}"},
    ]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


async def test_calls_without_arguments_have_an_empty_object(client, engine):
    engine.reply = events_reply(
        *(ToolCallStart(0, "a", "f"), ToolCallEnd(0), ToolCallStart(1, "b", "g"), ToolCallEnd(1)), finish="tool_calls"
    )
    events = await stream(client)
    inputs = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert inputs == ["{}", "{}"]
    assert [block["input"] for block in (await whole(client))["content"]] == [{}, {}]


async def test_thoughts_that_are_not_wanted_are_signed_and_not_sent(client, engine):
    engine.reply = events_reply(ReasoningDelta("secret"), TextDelta("Hello"))
    thinking = {"type": "adaptive", "display": "omitted"}
    events = await stream(client, thinking=thinking)
    assert shape(events)[1:4] == [("start", 0), ("delta", 0), ("stop", 0)]
    assert events[2]["delta"]["type"] == "signature_delta"
    message = await whole(client, thinking=thinking)
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": SIGNATURE}
    assert "secret" not in json.dumps([events, message])


@pytest.mark.parametrize("finish", ["length", "stop"])
async def test_a_call_that_was_cut_off_or_broken_off_ends_as_at_the_limit(client, engine, finish):
    engine.reply = events_reply(TextDelta("Look."), *CALL[:2], finish=finish)
    events = await stream(client)
    assert shape(events)[-3:] == [("stop", 1), "message_delta", "message_stop"]
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    message = await whole(client)
    assert (message["content"], message["stop_reason"]) == ([{"type": "text", "text": "Look."}], "max_tokens")


async def test_a_call_that_is_broken_off_after_whole_ones_ends_as_at_the_limit(client, engine):
    engine.reply = events_reply(*CALL, ToolCallStart(1, "call_2", "g"), finish="tool_calls")
    assert (await stream(client))[-2]["delta"]["stop_reason"] == "max_tokens"
    message = await whole(client)
    assert ([block["id"] for block in message["content"]], message["stop_reason"]) == (["call_1"], "max_tokens")


@pytest.mark.parametrize(
    ("finish", "stop", "reason", "sequence"),
    [
        ("stop", None, "end_turn", None),
        ("stop", 2, "end_turn", None),
        ("stop", "STOP", "stop_sequence", "STOP"),
        ("stop", "the operator's", "end_turn", None),
        ("length", None, "max_tokens", None),
        ("tool_calls", None, "tool_use", None),
    ],
)
async def test_why_it_stopped(client, engine, finish, stop, reason, sequence):
    engine.reply = [finished(finish, stop=stop, events=[TextDelta("a")])]
    message = await whole(client, stop_sequences=["STOP"])
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
    events = await stream(client, stop_sequences=["STOP"])
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


async def test_cached_tokens_are_read_and_not_input(client, engine):
    engine.reply = [
        [Output(choice=0, events=[TextDelta("a")], cached_tokens=2)],
        finished(cached=2, completion=5, thinking=1),
    ]
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 1},
    }
    events = await stream(client)
    assert events[0]["message"]["usage"] == {
        "input_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 0,
    }
    assert events[-2]["usage"] == usage
    assert (await whole(client))["usage"] == usage


async def test_blocks_stand_in_the_order_of_the_stream(client, engine):
    call = (ToolCallStart(0, "a", "f"), ToolCallArguments(0, '{"x":1}'), ToolCallEnd(0))
    engine.reply = events_reply(ReasoningDelta("Hm."), TextDelta("Hi"), *call, TextDelta(" b"), TextDelta("ye"))
    blocks = (await whole(client))["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "text"]
    assert (blocks[1]["text"], blocks[3]["text"]) == ("Hi", " bye")
    starts = [event for event in await stream(client) if event["type"] == "content_block_start"]
    assert [event["content_block"]["type"] for event in starts] == [block["type"] for block in blocks]


async def test_an_answer_without_anything_has_no_blocks(client, engine):
    engine.reply = [finished()]
    assert shape(await stream(client)) == ["message_start", "message_delta", "message_stop"]
    assert (await whole(client))["content"] == []


async def test_a_failure_midway_is_the_last_event(client, engine):
    engine.reply = [*text_reply("ab")[:1], EngineFailed("It broke.")]
    events = await stream(client)
    assert shape(events) == ["message_start", ("start", 0), ("delta", 0), "error"]
    assert events[-1].pop("request_id"), "by which the operator finds it in the log"
    assert events[-1] == {"type": "error", "error": {"type": "api_error", "message": "It broke."}}


async def test_a_stream_that_ends_too_early_is_an_error(client, engine):
    engine.reply = text_reply("ab")[:1]
    assert shape(await stream(client))[-1] == "error"


def test_silence_is_filled_with_pings():
    encoder = MessageStreamEncoder(message_id="m", model="m", prompt_tokens=1, stop_sequences=(), show_thinking=True)
    assert encoder.start() == b""
    assert events_of(encoder.keep_alive().decode()) == [{"type": "ping"}]


async def test_tokens_are_counted_as_they_are_rendered(client, engine):
    response = await client.post(
        "/v1/messages/count_tokens", json={"model": "default", "system": "abc", "messages": BODY["messages"]}
    )
    assert response.json() == {"input_tokens": len("abc\nHi")}
    assert engine.requests == []


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_an_unknown_model_is_not_found(client, path):
    response = await client.post(path, json={**BODY, "model": "none"})
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_a_missing_field_is_named(client, path):
    response = await client.post(path, json={"model": "default", "max_tokens": 1})
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "messages" in response.json()["error"]["message"]


async def test_headers_of_clients_are_accepted_and_the_request_is_named(client, engine):
    engine.reply = text_reply("ok")
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "of-tomorrow-2030-01-01", "x-request-id": "mine"}
    for body in (BODY, {**BODY, "stream": True}):
        response = await client.post("/v1/messages?beta=true", json=body, headers=headers)
        assert (response.status_code, response.headers["request-id"]) == (200, "mine")
    assert [request.trace_id for request in engine.requests] == ["mine", "mine"]


@pytest.mark.parametrize("headers", [{"x-api-key": "right"}, {"authorization": "Bearer right"}])
async def test_both_kinds_of_key_are_accepted(headers):
    engine = ScriptedEngine(text_reply("ok"))
    settings = Settings(api_keys=["right"])
    async with connect(assemble(engine, [AnthropicFrontend(engine, settings)], settings)) as client:
        assert (await client.post("/v1/messages", json=BODY, headers=headers)).status_code == 200
        response = await client.post("/v1/messages", json=BODY)
        assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize(("settings", "kind"), [(Settings(max_body_bytes=10), "request_too_large")])
async def test_a_body_that_is_too_large_has_its_own_type(settings, kind):
    engine = ScriptedEngine()
    async with connect(assemble(engine, [AnthropicFrontend(engine, settings)], settings)) as client:
        response = await client.post("/v1/messages", json=BODY)
        assert (response.status_code, response.json()["error"]["type"]) == (413, kind)
