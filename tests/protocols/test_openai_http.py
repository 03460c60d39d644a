from __future__ import annotations

import math

import pytest

from vllm_mlx_core.api import (
    EngineFailed,
    InvalidRequest,
    Output,
    Overloaded,
    ReasoningDelta,
    Settings,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import connect, end, events_reply, text_reply
from vllm_mlx_protocols.openai import OpenAIFrontend

from .openai_asking import CHAT, TEXT, USER, ask, error, stream, token

pytestmark = pytest.mark.anyio
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("add", "ping")]
CALLS = (
    TextDelta("Let me see."),
    ToolCallStart(0, "call_a", "add"),
    ToolCallArguments(0, '{"a": '),
    ToolCallArguments(0, '"日本"}'),
    ToolCallEnd(0),
    ToolCallStart(1, "call_b", "ping"),
    ToolCallEnd(1),
)


async def test_a_whole_answer_has_every_field_strict_clients_want(client, engine):
    engine.reply = text_reply("Hello", prompt_tokens=3)
    answer = await ask(client, model="default")
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "chat.completion",
        "model": "scripted/model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 6,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def joined(chunks):
    """Return the message that a client joins from the chunks of a stream, and its finish reason."""
    message, calls, finish = {"content": ""}, {}, None
    for choice in (chunk["choices"][0] for chunk in chunks):
        delta = choice["delta"]
        for name in ("content", "reasoning", "reasoning_content"):
            if name in delta:
                message[name] = message.get(name, "") + delta[name]
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls[call["index"]] = call
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        finish = choice["finish_reason"] or finish
    return message, [{name: calls[i][name] for name in ("id", "type", "function")} for i in sorted(calls)], finish


BROKEN_OFF = (ToolCallStart(0, "call_a", "add"), ToolCallArguments(0, '{"a": '), TextDelta('CALL add {"a": oops'))
CUT_OFF = (ReasoningDelta("Hm."), TextDelta("So: "), ToolCallStart(0, "call_a", "add"), ToolCallArguments(0, '{"a'))
BARELY_BEGUN = (ToolCallStart(0, "call_a", "add"),)


@pytest.mark.parametrize(
    ("events", "finish"),
    [
        (BROKEN_OFF, "stop"),
        (BROKEN_OFF, "length"),
        ((*BROKEN_OFF, ToolCallStart(1, "call_b", "ping"), ToolCallEnd(1)), "tool_calls"),
        (CUT_OFF, "length"),
        (CUT_OFF, "stop"),
        (BARELY_BEGUN, "length"),
        (CALLS, "tool_calls"),
        ((ReasoningDelta("Hm."), TextDelta("Yes.")), "stop"),
        ((), "stop"),
    ],
)
async def test_a_stream_joins_to_the_answer_in_one_piece(client, engine, events, finish):
    engine.reply = events_reply(*events, finish=finish)
    (choice,) = (await ask(client, tools=TOOLS))["choices"]
    message = choice["message"]
    whole = {name: message[name] for name in ("content", "reasoning", "reasoning_content") if name in message}
    whole["content"] = whole["content"] or ""
    *chunks, _ = await stream(client, tools=TOOLS)
    assert joined(chunks) == (whole, message.get("tool_calls", []), choice["finish_reason"])


async def test_a_call_that_was_never_completed_is_there_as_far_as_it_came(client, engine):
    engine.reply = events_reply(*BROKEN_OFF)
    (choice,) = (await ask(client, tools=TOOLS))["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == 'CALL add {"a": oops'
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == ['{"a": ']


async def test_a_stream_begins_with_the_role_and_ends_with_one_finish_and_done(client, engine):
    engine.reply = text_reply('a"\n😀')
    *chunks, done = await stream(client, model="scripted/model")
    assert done == "[DONE]"
    assert {(c["object"], c["model"]) for c in chunks} == {("chat.completion.chunk", "scripted/model")}
    assert len({(c["id"], c["created"]) for c in chunks}) == 1
    assert all("usage" not in c for c in chunks)
    choices = [c["choices"][0] for c in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [c["delta"] for c in choices[1:]] == [{"content": x} for x in 'a"\n😀'] + [{}]
    assert [c["finish_reason"] for c in choices] == [None] * 5 + ["stop"]
    assert all(c["logprobs"] is None for c in choices)


async def test_usage_comes_last_with_no_choices_and_is_null_before(client, engine):
    usage = Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=2, reasoning_tokens=1)
    engine.reply = [[Output(choice=0, events=[TextDelta("x")])], [Output(choice=0, finish="length", usage=usage)]]
    *chunks, last, done = await stream(client, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert all(c["usage"] is None for c in chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


async def test_tool_calls_in_one_piece(client, engine):
    engine.reply = events_reply(*CALLS, finish="tool_calls")
    choice = (await ask(client, tools=TOOLS))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert choice["message"]["tool_calls"] == [
        {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": "日本"}'}},
        {"id": "call_b", "type": "function", "function": {"name": "ping", "arguments": "{}"}},
    ]


async def test_content_is_null_if_there_are_only_calls_and_empty_if_there_is_nothing(client, engine):
    engine.reply = events_reply(*CALLS[1:], finish="tool_calls")
    assert (await ask(client, tools=TOOLS))["choices"][0]["message"]["content"] is None
    engine.reply = [end()]
    message = (await ask(client))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "", "refusal": None}


@pytest.mark.parametrize("at_once", [False, True])
async def test_tool_deltas_have_an_index_and_say_id_and_name_once(client, engine, at_once):
    engine.reply = events_reply(*CALLS, finish="tool_calls")
    if at_once:
        engine.reply = [[Output(choice=0, events=CALLS)], end("tool_calls")]
    *chunks, _ = await stream(client, tools=TOOLS)
    deltas = [c["choices"][0]["delta"] for c in chunks]
    calls = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert all(len(call) == 1 for call in calls)
    starts = [call[0] for call in calls if "id" in call[0]]
    assert starts == [
        {"index": 0, "id": "call_a", "type": "function", "function": {"name": "add", "arguments": ""}},
        {"index": 1, "id": "call_b", "type": "function", "function": {"name": "ping", "arguments": ""}},
    ]
    later = [call[0] for call in calls if "id" not in call[0]]
    assert all(set(call) == {"index", "function"} and set(call["function"]) == {"arguments"} for call in later)
    for index, arguments in ((0, '{"a": "日本"}'), (1, "{}")):
        assert "".join(call["function"]["arguments"] for call in later if call["index"] == index) == arguments
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["tool_calls"]


async def test_reasoning_has_both_names(client, engine):
    engine.reply = events_reply(ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Yes"))
    message = (await ask(client))["choices"][0]["message"]
    assert (message["reasoning"], message["reasoning_content"], message["content"]) == ("Hm.", "Hm.", "Yes")
    deltas = [c["choices"][0]["delta"] for c in (await stream(client))[:-1]]
    assert deltas[1] == {"reasoning": "Hm", "reasoning_content": "Hm"}


@pytest.mark.parametrize("choice", ["reasoning", "reasoning_content"])
async def test_the_operator_chooses_one_name_for_reasoning(engine, choice):
    engine.reply = events_reply(ReasoningDelta("Hm"), TextDelta("Yes"))
    settings = Settings(reasoning_fields=choice)
    async with connect(assemble(engine, [OpenAIFrontend(engine, settings)], settings)) as client:
        message = (await ask(client))["choices"][0]["message"]
        deltas = [c["choices"][0]["delta"] for c in (await stream(client))[:-1]]
    assert message == {"role": "assistant", "content": "Yes", "refusal": None, choice: "Hm"}
    assert deltas[1:3] == [{choice: "Hm"}, {"content": "Yes"}]


async def test_a_client_may_have_reasoning_hidden(client, engine):
    usage = Usage(prompt_tokens=3, completion_tokens=3, reasoning_tokens=2)
    engine.reply = [
        [Output(choice=0, events=[ReasoningDelta("Hm")])],
        [Output(choice=0, events=[ReasoningDelta("!"), TextDelta("Yes")])],
        [Output(choice=0, finish="stop", usage=usage)],
    ]
    answer = await ask(client, include_reasoning=False)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Yes", "refusal": None}
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    *chunks, last, _ = await stream(client, include_reasoning=False, stream_options={"include_usage": True})
    assert [c["choices"][0]["delta"] for c in chunks][1:] == [{"content": "Yes"}, {}]
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    for said in (True, None):
        assert (await ask(client, include_reasoning=said))["choices"][0]["message"]["reasoning"] == "Hm!"


async def test_several_completions_are_numbered_and_the_prompt_counts_once(client, engine):
    engine.reply = text_reply("ab", prompt_tokens=3)
    answer = await ask(client, n=3)
    assert [(c["index"], c["message"]["content"]) for c in answer["choices"]] == [(0, "ab"), (1, "ab"), (2, "ab")]
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 9)
    *chunks, usage, _ = await stream(client, n=3, stream_options={"include_usage": True})
    for index in range(3):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in mine) == "ab"
        assert [c["finish_reason"] for c in mine if c["finish_reason"]] == ["stop"]
    assert usage["usage"] == answer["usage"]


async def test_logprobs_have_one_entry_per_token_streamed_or_not(client, engine):
    emoji = "😀".encode()
    engine.reply = [
        [Output(choice=0, logprobs=[token(emoji[:2], top=[(emoji[:2], -0.5), (b"x", -math.inf)])])],  # held back
        [Output(choice=0, events=[TextDelta("😀")], logprobs=[token(emoji[2:])])],
        [Output(choice=0, logprobs=[token(b"")], finish="stop", usage=Usage())],
    ]
    entries = (await ask(client, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in entries] == [list(emoji[:2]), list(emoji[2:]), []]
    assert entries[0]["top_logprobs"][1] == {"token": "x", "logprob": -9999.0, "bytes": [120]}
    *chunks, _ = await stream(client, logprobs=True, top_logprobs=2)
    streamed = [c["choices"][0]["logprobs"] for c in chunks]
    assert [entry for each in streamed if each for entry in each["content"]] == entries


async def test_an_error_midway_is_the_last_event(client, engine):
    engine.reply = [*text_reply("abc")[:3], EngineFailed("Broken.")]
    events = await stream(client)
    assert events[-1] == {"error": {"message": "Broken.", "type": "server_error", "param": None, "code": None}}
    assert all(event["choices"][0]["finish_reason"] is None for event in events[:-1])


async def test_an_engine_that_ends_early_is_an_error_not_a_finish(client, engine):
    engine.reply = text_reply("abc")[:3]
    assert "error" in (await stream(client))[-1]


async def test_a_failing_encoder_does_not_break_the_stream_format(client, engine):
    engine.reply = [[Output(choice=5, events=[TextDelta("x")])]]
    assert (await stream(client))[-1]["error"]["type"] == "server_error"


async def test_refusals_come_before_the_first_byte(client, engine):
    def refuse(request):
        raise Overloaded("Full.", retry_after_s=9)

    engine.reply = refuse
    response = await client.post(CHAT, json={"messages": [USER], "stream": True})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "9"
    assert response.json()["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 500}}, "logit_bias.1"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream_options": {}}, "stream_options"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"thinking_token_budget": 100}, "thinking_token_budget"),
        ({"echo": True}, "echo"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 9}, "n"),
        ({"max_tokens": 1001}, "max_tokens"),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named_as_the_client_wrote_it(client, engine, fields, param):
    status, body = await error(client, **fields)
    assert (status, body["type"], body["param"]) == (400, "invalid_request_error", param)
    assert not engine.requests


async def test_an_unknown_model_is_not_found_on_every_route(client):
    for path, fields in ((CHAT, {}), (TEXT, {"prompt": "x"})):
        status, body = await error(client, path, model="../../etc", **fields)
        assert (status, body["code"], body["param"]) == (404, "model_not_found", "model")
    response = await client.get("/v1/models/no/such")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_models(client):
    expected = {
        "id": "scripted/model",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "vllm-mlx",
        "max_model_len": 4096,
        "context_length": 4096,
        "capabilities": {},
        "state": "loaded",
    }
    assert (await client.get("/v1/models")).json() == {"object": "list", "data": [expected]}
    assert (await client.get("/v1/models/scripted/model")).json() == expected
    assert (await client.get("/v1/models/default")).json() == expected


@pytest.mark.parametrize(("path", "fields"), [(CHAT, {"logprobs": True}), (TEXT, {"prompt": "x", "logprobs": 1})])
async def test_logprobs_are_null_where_no_token_came_streamed_or_not(client, engine, path, fields):
    engine.reply = [end()]
    assert (await ask(client, path, **fields))["choices"][0]["logprobs"] is None
    *chunks, _ = await stream(client, path, **fields)
    assert {chunk["choices"][0]["logprobs"] for chunk in chunks} == {None}


async def test_an_answer_may_start_with_the_message_that_it_continues(client, engine):
    engine.reply = text_reply("pon")
    fields = {
        "messages": [USER, {"role": "assistant", "content": "Once u"}],
        "continue_final_message": True,
        "echo": True,
        "n": 2,
    }
    assert [c["message"]["content"] for c in (await ask(client, **fields))["choices"]] == ["Once upon"] * 2
    *chunks, _ = await stream(client, **fields)
    for index in range(2):
        mine = [chunk for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert mine[0]["choices"][0]["delta"]["role"] == "assistant"
        assert joined(mine) == ({"content": "Once upon"}, [], "stop")


async def test_a_call_that_was_demanded_and_did_not_come_is_an_error(client, engine):
    engine.reply = [*text_reply("No.")[:3], InvalidRequest("No call came.", param="tool_choice")]
    fields = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "ping"}}}
    status, body = await error(client, **fields)
    assert (status, body["param"]) == (400, "tool_choice")
    *chunks, last = await stream(client, **fields)
    assert last["error"]["param"] == "tool_choice"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert all(request.call_required for request in engine.requests)
    assert [[tool.name for tool in request.prompt.tools] for request in engine.requests] == [["ping"]] * 2


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("path", "fields"), [(CHAT, {"messages": [USER]}), (TEXT, {"prompt": ["x", "y"]})])
async def test_the_id_of_the_http_request_goes_in_and_comes_back(client, engine, path, fields, streamed):
    engine.reply = text_reply("a")
    response = await client.post(path, json={**fields, "stream": streamed}, headers={"x-request-id": "trace-1"})
    assert response.headers["x-request-id"] == "trace-1"
    assert {request.trace_id for request in engine.requests} == {"trace-1"}
    response = await client.post(path, json={**fields, "stream": streamed})
    assert engine.requests[-1].trace_id == response.headers["x-request-id"] != "trace-1"


@pytest.mark.parametrize(("path", "fields"), [(CHAT, {}), (TEXT, {"prompt": "x"})])
async def test_nothing_follows_the_terminal_event(client, engine, path, fields):
    engine.reply = text_reply("abc")
    events = await stream(client, path, **fields)
    assert [event for event in events if event == "[DONE]"] == events[-1:]
    engine.reply = [*text_reply("abc")[:2], EngineFailed("Broken."), *text_reply("more")]
    events = await stream(client, path, **fields)
    assert "[DONE]" not in events
    assert ["error" in event for event in events] == [False] * (len(events) - 1) + [True]


async def test_form_posts_from_web_pages_are_refused(client):
    response = await client.post(CHAT, content=b'{"messages": []}', headers={"content-type": "text/plain"})
    assert response.status_code == 400
    assert "application/json" in response.json()["error"]["message"]


async def test_the_description_promises_no_errors_in_another_shape(client):
    description = (await client.get("/openapi.json")).text
    assert "4XX" in description
    assert "422" not in description
    assert "HTTPValidationError" not in description
