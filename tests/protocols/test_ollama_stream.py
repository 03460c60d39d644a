from __future__ import annotations

import asyncio
import json

import pytest

from vllm_mlx_core.api import (
    EngineFailed,
    Event,
    EventStream,
    Output,
    Overloaded,
    ReasoningDelta,
    Settings,
    TextDelta,
    TokenLogprob,
    TokenLogprobs,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedStream, connect, end, events_reply, text_reply
from vllm_mlx_protocols.ollama import OllamaFrontend
from vllm_mlx_protocols.ollama.stream import NDJSON, LineEncoder, line
from vllm_mlx_protocols.ollama.timing import TimedOutputs

pytestmark = pytest.mark.anyio
CHAT = {"model": "default", "messages": [{"role": "user", "content": "Hi"}]}
CALL = (ToolCallStart(0, "c1", "f"), ToolCallArguments(0, '{\n"a":'), ToolCallArguments(0, "1}"), ToolCallEnd(0))


@pytest.fixture
async def client(engine):
    settings = Settings()
    async with connect(assemble(engine, [OllamaFrontend(engine, settings)], settings)) as client:
        yield client


async def stream(client, path="chat", **fields):
    response = await client.post(f"/api/{path}", json={**CHAT, "prompt": "Hi", **fields})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == NDJSON
    assert response.text.endswith("\n")
    return [json.loads(each) for each in response.text.splitlines()]


async def test_streaming_is_what_happens_unless_it_is_forbidden(client, engine):
    engine.reply = text_reply("Hey")
    *pieces, last = await stream(client)
    assert [piece["message"] for piece in pieces] == [{"role": "assistant", "content": each} for each in "Hey"]
    assert not any(piece["done"] for piece in pieces)
    assert (last["done"], last["done_reason"], last["message"]["content"]) == (True, "stop", "")
    assert (last["prompt_eval_count"], last["eval_count"]) == (3, 4)
    assert last["prompt_eval_duration"] + last["eval_duration"] == last["total_duration"] > 0
    assert all(each.closed.is_set() for each in engine.streams)


async def test_generate_has_its_text_in_response(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Yes."), finish="length")
    thought, text, last = await stream(client, "generate")
    assert (thought["thinking"], thought["response"]) == ("hm", "")
    assert text["response"] == "Yes."
    assert (last["done_reason"], last["response"]) == ("length", "")


async def test_a_call_comes_whole_and_one_that_was_cut_off_not_at_all(client, engine):
    cut_off = (ToolCallStart(1, "c2", "g"), ToolCallArguments(1, '{"b'))
    engine.reply = events_reply(*CALL, *cut_off, finish="length")
    call, last = await stream(client)
    assert call["message"] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
    }
    assert last["done_reason"] == "length"
    assert "tool_calls" not in last["message"]


async def test_several_calls_keep_their_own_arguments(client, engine):
    engine.reply = [
        [Output(choice=0, events=[*CALL, ToolCallStart(1, "c2", "g"), ToolCallEnd(1)])],
        end("tool_calls"),
    ]
    call, last = await stream(client)
    assert [each["function"]["arguments"] for each in call["message"]["tool_calls"]] == [{"a": 1}, {}]
    assert last["done_reason"] == "stop"


async def test_thoughts_are_left_out_on_request(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Yes."))
    pieces = await stream(client, think=False)
    assert [piece["message"]["content"] for piece in pieces] == ["Yes.", ""]
    assert not any("thinking" in piece["message"] for piece in pieces)


async def test_what_the_last_output_says_is_sent_before_the_end(client, engine):
    (last,) = end()
    engine.reply = [[Output(choice=0, events=[TextDelta("x")], finish="stop", usage=last.usage)]]
    pieces = await stream(client)
    assert [(piece["message"]["content"], piece["done"]) for piece in pieces] == [("x", False), ("", True)]


async def test_logprobs_wait_for_the_text_they_belong_to(client, engine):
    def token(text):
        return TokenLogprobs(TokenLogprob(1, text.encode(), -0.5), [TokenLogprob(1, text.encode(), -0.5)])

    engine.reply = [
        [Output(choice=0, logprobs=[token("a")])],
        [Output(choice=0, events=[TextDelta("ab")], logprobs=[token("b")])],
        [Output(choice=0, logprobs=[token("é")])],
        end(),
    ]
    piece, last = await stream(client, logprobs=True, top_logprobs=1)
    assert [each["token"] for each in piece["logprobs"]] == ["a", "b"]
    assert last["logprobs"] == [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [195, 169],
            "top_logprobs": [{"token": "é", "logprob": -0.5, "bytes": [195, 169]}],
        }
    ]


async def test_a_failure_midway_is_the_last_line(client, engine):
    engine.reply = [*text_reply("wombat")[:2], EngineFailed("The engine broke.")]
    pieces = await stream(client)
    assert [piece["message"]["content"] for piece in pieces[:-1]] == ["w", "o"]
    assert pieces[-1] == {"error": "The engine broke."}
    assert engine.streams[0].closed.is_set()


async def test_an_answer_that_never_ends_is_a_failure(client, engine):
    engine.reply = text_reply("wombat")[:2]
    assert "error" in (await stream(client))[-1]
    assert (await client.post("/api/chat", json={**CHAT, "stream": False})).status_code == 500


async def test_a_refusal_has_its_status(client, engine):
    def refuse(request):
        raise Overloaded("The queue is full.", retry_after_s=3)

    engine.reply = refuse
    response = await client.post("/api/chat", json=CHAT)
    assert (response.status_code, response.json()) == (503, {"error": "The queue is full."})
    assert response.headers["retry-after"] == "3"


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
async def test_no_character_of_an_answer_ends_a_line(client, engine, end):
    text = f"é{end}日"
    arguments = json.dumps({"a": text}, ensure_ascii=False)
    engine.reply = events_reply(
        TextDelta(text), ToolCallStart(0, "c", "f"), ToolCallArguments(0, arguments), ToolCallEnd(0)
    )
    said, call, last = await stream(client)
    assert said["message"]["content"] == text
    assert call["message"]["tool_calls"][0]["function"]["arguments"] == {"a": text}
    assert last["done"]


def test_numbers_of_arguments_stay_as_the_model_wrote_them():
    encoder = LineEncoder("chat", "m", TimedOutputs(ScriptedStream([], 1, 3), 0), show_thinking=True)
    arguments = '{"big": 123456789012345678901234567890, "a": 1.10}'
    events: list[Event] = [ToolCallStart(0, "c", "f"), ToolCallArguments(0, arguments), ToolCallEnd(0)]
    assert arguments.encode() in encoder.feed([Output(choice=0, events=events)])


def test_a_line_is_the_plain_json_otherwise():
    assert line({"a": "é\u2028"}) == '{"a":"é\\u2028"}\n'.encode()


async def test_silence_is_not_filled(monkeypatch):
    gate, sent, timers = asyncio.Event(), [], []
    outputs = TimedOutputs(ScriptedStream([gate, *text_reply("a")], 1, 3), 0)
    encoder = LineEncoder("chat", "m", outputs, show_thinking=True)
    events = EventStream(outputs, encoder, content_type=NDJSON, keep_alive_s=0.001)
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def count(*arguments, **options):
        timers.append(arguments)
        if len(timers) == 5:  # four beats were due
            gate.set()
        return call_at(*arguments, **options)

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "call_at", count)
    await events({"type": "http"}, receive, send)
    assert (b"content-type", NDJSON.encode()) in sent[0]["headers"]
    assert [json.loads(message["body"])["done"] for message in sent[1:]] == [False, True]


async def test_a_client_that_leaves_closes_the_outputs(engine):
    inner = ScriptedStream([*text_reply("wombat")[:2], asyncio.Event()], 1, 3)
    outputs = TimedOutputs(inner, 0)
    left = asyncio.Event()

    async def send(message):
        if message.get("body"):
            left.set()

    async def receive():
        await left.wait()
        return {"type": "http.disconnect"}

    encoder = LineEncoder("chat", "m", outputs, show_thinking=True)
    async with asyncio.timeout(30):
        await EventStream(outputs, encoder, content_type=NDJSON)({"type": "http"}, receive, send)
    assert inner.closed.is_set()


async def test_durations_are_measured_between_arrival_first_output_and_end():
    ticks = iter([150, 400])
    outputs = TimedOutputs(ScriptedStream(text_reply("ab"), 1, 3), 100, lambda: next(ticks))
    steps = [step async for step in outputs]
    usage = steps[-1][0].usage
    assert usage is not None
    metrics = outputs.metrics(usage)
    assert metrics == {
        "total_duration": 300,
        "load_duration": 0,
        "prompt_eval_count": 3,
        "prompt_eval_duration": 50,
        "eval_count": 3,
        "eval_duration": 250,
    }
