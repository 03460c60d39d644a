from __future__ import annotations

import json

import pytest

from vllm_mlx_core.api import (
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    Output,
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
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, end, events_reply, text_reply
from vllm_mlx_protocols.responses.frontend import ResponsesFrontend

from .responses_asking import PATH, ask, error, stream, without_ids

pytestmark = pytest.mark.anyio
TOOLS = [
    {"type": "function", "name": "add", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch", "description": "Edit files."},
    {"type": "web_search"},
    {"type": "local_shell"},
]
CALLS = (
    ReasoningDelta("Hm"),
    ReasoningDelta("m."),
    TextDelta("\n\n"),
    TextDelta("Let me "),
    TextDelta("see."),
    ToolCallStart(0, "call_a", "add"),
    ToolCallArguments(0, '{"a": '),
    ToolCallArguments(0, '"日本"}'),
    ToolCallEnd(0),
    TextDelta("\n"),
    ToolCallStart(1, "call_b", "patch"),
    ToolCallArguments(1, '{"input": "*** Begin'),
    ToolCallArguments(1, '\\nEnd"}'),
    ToolCallEnd(1),
    ToolCallStart(2, "call_c", "add"),
    ToolCallEnd(2),
)


@pytest.fixture
def engine():
    return ScriptedEngine(text_reply("Hello"))


@pytest.fixture
async def client(engine):
    settings = Settings(max_request_tokens=1000)
    async with connect(assemble(engine, [ResponsesFrontend(engine, settings)], settings)) as client:
        yield client


async def test_a_whole_answer_has_every_field_clients_want(client):
    answer = await ask(client, metadata={"a": "b"}, instructions="Be brief.")
    assert answer["id"].startswith("resp_")
    assert (answer["object"], answer["status"], answer["model"]) == ("response", "completed", "scripted/model")
    (message,) = answer["output"]
    assert message["id"].startswith("msg_")
    part = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert without_ids(message) == {"type": "message", "status": "completed", "role": "assistant", "content": [part]}
    assert answer["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 9,
    }
    assert (answer["metadata"], answer["instructions"]) == ({"a": "b"}, "Be brief.")
    assert (answer["tool_choice"], answer["tools"], answer["error"]) == ("auto", [], None)


async def test_the_stream_has_the_events_in_their_order(client, engine):
    engine.reply = text_reply("Hi")
    events = await stream(client)
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    assert [event["delta"] for event in events[4:6]] == ["H", "i"]
    assert events[6]["text"] == "Hi"
    assert events[-1]["response"]["output"] == [events[-2]["item"]]
    assert events[-1]["response"]["usage"]["total_tokens"] == 6


async def test_a_stream_ends_with_the_response_that_is_given_in_one_piece(client, engine):
    engine.reply = events_reply(*CALLS, finish="tool_calls")
    include = ["reasoning.encrypted_content"]
    whole = await ask(client, tools=TOOLS, include=include)
    events = await stream(client, tools=TOOLS, include=include)
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert [item["type"] for item in whole["output"]] == [
        *("reasoning", "message", "function_call", "custom_tool_call", "function_call"),
    ]
    thoughts, message, call, custom, empty = whole["output"]
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "Hmm."}]
    assert thoughts["encrypted_content"]
    assert message["content"][0]["text"] == "\n\nLet me see."
    assert (call["call_id"], call["name"], json.loads(call["arguments"])) == ("call_a", "add", {"a": "日本"})
    assert (custom["name"], custom["input"]) == ("patch", "*** Begin\nEnd")
    assert (empty["arguments"], empty["status"]) == ("{}", "completed")
    assert [tool["type"] for tool in whole["tools"]] == ["function", "custom"]


async def test_thoughts_come_as_a_summary_for_clients_that_ask_for_one(client, engine):
    engine.reply = events_reply(ReasoningDelta("Hm"), ReasoningDelta("m."), TextDelta("Yes."))
    for reasoning in ({"summary": "auto"}, {"generate_summary": "concise"}):
        whole = await ask(client, reasoning=reasoning)
        events = await stream(client, reasoning=reasoning)
        assert without_ids(events[-1]["response"]) == without_ids(whole)
        assert whole["reasoning"]["summary"] == "detailed"
        thoughts = whole["output"][0]
        assert (thoughts["summary"], thoughts["content"]) == ([{"type": "summary_text", "text": "Hmm."}], [])
        told = [event for event in events if "reasoning" in event["type"]]
        assert [event["type"].removeprefix("response.reasoning_summary_") for event in told] == [
            *("part.added", "text.delta", "text.delta", "text.done", "part.done"),
        ]
        assert {(event["item_id"], event["summary_index"]) for event in told} == {
            (events[-1]["response"]["output"][0]["id"], 0)
        }
        assert (told[1]["delta"] + told[2]["delta"], told[3]["text"]) == ("Hmm.", "Hmm.")
    await ask(client, input=[*whole["output"], {"role": "user", "content": "Sure?"}])
    assert engine.requests[-1].prompt.messages[0]["reasoning_content"] == "Hmm.", "it can be sent back"


async def test_every_delta_belongs_to_an_item_that_was_added_and_joins_to_what_is_done(client, engine):
    engine.reply = events_reply(*CALLS, finish="tool_calls")
    events = await stream(client, tools=TOOLS)
    added: dict[str, int] = {}
    joined: dict[str, str] = {}
    done: dict[str, int] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            added[event["item"]["id"]] = event["output_index"]
        elif "delta" in event:
            assert added[event["item_id"]] == event["output_index"]
            joined[event["item_id"]] = joined.get(event["item_id"], "") + event["delta"]
        elif event["type"].endswith((".done",)) and "item_id" in event and "part" not in event:
            text = event.get("text", event.get("arguments", event.get("input")))
            assert joined[event["item_id"]] == text
        elif event["type"] == "response.output_item.done":
            done[event["item"]["id"]] = event["output_index"]
    assert added == done
    assert sorted(done.values()) == list(range(5))
    names = {event["type"] for event in events}
    assert {"response.reasoning_text.delta", "response.custom_tool_call_input.done"} <= names
    assert "response.function_call_arguments.done" in names


async def test_a_limit_makes_the_response_incomplete(client, engine):
    engine.reply = text_reply("Hel", finish="length")
    answer = await ask(client, max_output_tokens=4)
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["status"] == "incomplete"
    assert (await stream(client))[-1]["type"] == "response.incomplete"


async def test_calls_that_are_cut_off_cannot_be_made(client, engine):
    cut = (ToolCallStart(0, "a", "add"), ToolCallArguments(0, '{"a'), ToolCallStart(1, "b", "patch"))
    engine.reply = events_reply(*cut, ToolCallArguments(1, '{"input": "rm'), finish="length")
    answer = await ask(client, tools=TOOLS)
    (call,) = answer["output"]
    assert (call["status"], call["arguments"]) == ("incomplete", '{"a')
    await ask(client, previous_response_id=answer["id"])
    assert [message["role"] for message in engine.requests[-1].prompt.messages] == ["user", "user"]


async def test_an_answer_of_nothing_is_an_empty_message(client, engine):
    engine.reply = [end()]
    assert [item["content"][0]["text"] for item in (await ask(client))["output"]] == [""]
    engine.reply = text_reply(" \n")
    assert [item["content"][0]["text"] for item in (await ask(client))["output"]] == [" \n"]


async def test_a_failure_midway_is_an_error_and_a_failed_response(client, engine):
    engine.reply = [*text_reply("Hello")[:2], EngineFailed("It broke.")]
    *_, wrong, failed = await stream(client)
    assert (wrong["type"], wrong["message"], wrong["code"]) == ("error", "It broke.", "server_error")
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["store"] is False, "as nobody can ask for it"
    assert failed["response"]["error"] == {"code": "server_error", "message": "It broke."}
    assert (await client.get(f"{PATH}/{failed['response']['id']}")).status_code == 404


async def test_an_engine_that_stops_too_early_is_a_failure(client, engine):
    engine.reply = text_reply("Hello")[:-1]
    assert (await stream(client))[-1]["type"] == "response.failed"
    assert (await error(client))[0] == 500


async def test_logprobs_come_with_the_text(client, engine):
    one = TokenLogprobs(TokenLogprob(1, b"a", -0.5), [TokenLogprob(2, b"b", -1.5)])
    engine.reply = [[Output(choice=0, events=[TextDelta("a")], token_ids=[1], logprobs=[one])], end()]
    include = ["message.output_text.logprobs"]
    (message,) = (await ask(client, include=include, top_logprobs=1))["output"]
    entry = {"token": "a", "logprob": -0.5, "bytes": [97]}
    other = {"token": "b", "logprob": -1.5, "bytes": [98]}
    assert message["content"][0]["logprobs"] == [{**entry, "top_logprobs": [other]}]
    assert engine.requests[-1].sampling.logprobs == 1
    events = await stream(client, include=include)
    assert [event["logprobs"] for event in events if "delta" in event] == [message["content"][0]["logprobs"]]
    assert engine.requests[-1].sampling.logprobs == 0


async def test_a_conversation_goes_on_from_the_previous_response(client, engine):
    engine.reply = events_reply(*CALLS[:9], finish="tool_calls")
    first = await ask(client, tools=TOOLS, instructions="Old.")
    engine.reply = text_reply("3")
    outputs = [{"type": "function_call_output", "call_id": "call_a", "output": "sunny"}]
    second = await ask(client, input=outputs, previous_response_id=first["id"], instructions="New.")
    third = await ask(client, input="Bye", previous_response_id=second["id"])
    assert third["previous_response_id"] == second["id"]
    call = {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": "日本"}'}}
    assert engine.requests[-1].prompt.messages == [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "\n\nLet me see.",
            "reasoning_content": "Hmm.",
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "sunny"},
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "Bye"},
    ]
    assert engine.requests[-2].prompt.messages[0] == {"role": "system", "content": "New."}


async def test_a_previous_response_that_is_not_there_is_named(client):
    status, wrong = await error(client, previous_response_id="resp_nope")
    assert (status, wrong["param"]) == (400, "previous_response_id")
    assert wrong["code"] == "previous_response_not_found"


async def test_stored_responses_are_found_listed_and_forgotten(client):
    given = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two", "id": "msg_mine"}]
    answer = await ask(client, input=given)
    path = f"{PATH}/{answer['id']}"
    assert (await client.get(path)).json() == answer
    page = (await client.get(f"{path}/input_items", params={"order": "asc", "limit": 1})).json()
    assert page["has_more"] is True
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "One"}]
    rest = (await client.get(f"{path}/input_items", params={"order": "asc", "after": page["last_id"]})).json()
    assert ([item["id"] for item in rest["data"]], rest["has_more"]) == (["msg_mine"], False)
    newest_first = (await client.get(f"{path}/input_items")).json()
    assert newest_first["first_id"] == "msg_mine"
    assert (await client.get(f"{path}/input_items", params={"after": "x"})).json()["error"]["param"] == "after"
    assert (await client.get(path, params={"stream": "true"})).json()["error"]["param"] == "stream"
    assert (await client.post(f"{path}/cancel")).status_code == 400
    assert (await client.delete(path)).json() == {"id": answer["id"], "object": "response", "deleted": True}
    for gone in (
        client.get(path),
        client.delete(path),
        client.get(f"{path}/input_items"),
        client.post(f"{path}/cancel"),
    ):
        assert (await gone).status_code == 404


async def test_a_streamed_response_is_stored_and_one_that_must_not_be_is_not(client):
    final = (await stream(client))[-1]["response"]
    assert (await client.get(f"{PATH}/{final['id']}")).json() == final
    for kept in (await ask(client, store=False), (await stream(client, store=False))[-1]["response"]):
        assert kept["store"] is False
        assert (await client.get(f"{PATH}/{kept['id']}")).status_code == 404


async def test_items_can_be_referred_to(client, engine):
    answer = await ask(client)
    reference = {"type": "item_reference", "id": answer["output"][0]["id"]}
    await ask(client, input=[reference, {"role": "user", "content": "And?"}])
    assert [message["content"] for message in engine.requests[-1].prompt.messages] == ["Hello", "And?"]
    status, wrong = await error(client, input=[{"id": "msg_nope"}])
    assert (status, wrong["param"]) == (400, "input[0].id")


async def test_nobody_sees_the_responses_of_another_key(engine):
    settings = Settings(api_keys=["a", "b"])
    async with connect(assemble(engine, [ResponsesFrontend(engine, settings)], settings)) as client:
        mine, other = {"x-api-key": "a"}, {"x-api-key": "b"}
        answer = (await client.post(PATH, json={"input": "Hi"}, headers=mine)).json()
        path = f"{PATH}/{answer['id']}"
        assert (await client.get(path, headers=mine)).status_code == 200
        for hidden in (client.get(path, headers=other), client.delete(path, headers=other)):
            assert (await hidden).status_code == 404
        follow = {"input": "x", "previous_response_id": answer["id"]}
        assert (await client.post(PATH, json=follow, headers=other)).status_code == 400
        item = {"input": [{"type": "item_reference", "id": answer["output"][0]["id"]}]}
        assert (await client.post(PATH, json=item, headers=other)).status_code == 400
        assert (await client.post(PATH, json=item, headers=mine)).status_code == 200
    assert engine.requests[0].user == "key-1"


async def test_two_items_of_one_id_are_told_apart(client):
    given = [{"type": "message", "id": "m1", "role": "user", "content": str(number)} for number in range(3)]
    response_id = (await ask(client, input=given))["id"]
    page = (await client.get(f"{PATH}/{response_id}/input_items?order=asc")).json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["0", "1", "2"]
    assert page["first_id"] == "m1"
    assert len({item["id"] for item in page["data"]}) == 3


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 1}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"role": "user", "content": [{"type": "nonsense"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call", "call_id": "a", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": 1}]}, "input[0].type"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"include": ["everything"]}, "include[0]"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1001}, "max_output_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"truncation": "most"}, "truncation"),
        ({"background": True, "stream": True}, "stream"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"name": "x"}]}, "tools[0].type"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": {"type": "web_search"}, "tools": TOOLS}, "tool_choice.type"),
        ({"tool_choice": {"type": "function", "name": "x"}, "tools": TOOLS}, "tool_choice.name"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "tool_choice.name"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "x", "tools": []}}, "tool_choice.mode"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice.tools"),
    ],
)
async def test_what_cannot_be_honoured_is_named(client, fields, param):
    status, wrong = await error(client, **fields)
    assert (status, wrong["param"]) == (400, param)
    assert param.split("[")[0].split(".")[0] in wrong["message"]


async def test_an_unknown_model_is_told_as_openai_does(client):
    status, wrong = await error(client, model="nope")
    assert (status, wrong["code"], wrong["param"]) == (404, "model_not_found", "model")


@pytest.mark.parametrize(("truncation", "param"), [(None, "input"), ("disabled", "input"), ("auto", "truncation")])
async def test_an_input_that_does_not_fit_is_refused(client, engine, truncation, param):
    def refuse(request):
        raise ContextLengthExceeded("Too long.")

    assert (await ask(client, truncation="auto"))["truncation"] == "auto"
    engine.reply = refuse
    status, wrong = await error(client, truncation=truncation)
    assert (status, wrong["code"], wrong["param"]) == (400, "context_length_exceeded", param)


async def test_a_call_that_was_required_and_did_not_come_is_an_error(client, engine):
    engine.reply = [*text_reply("No")[:-1], InvalidRequest("No call came.", param="tool_choice")]
    status, wrong = await error(client, tools=TOOLS, tool_choice="required")
    assert (status, wrong["message"]) == (400, "No call came.")
    assert engine.requests[-1].call_required
    assert (await stream(client, tools=TOOLS, tool_choice="required"))[-1]["response"]["error"][
        "code"
    ] == "invalid_prompt"


async def test_the_engine_is_told_who_asks_and_under_which_id(client, engine):
    await client.post(PATH, json={"input": "Hi"}, headers={"x-request-id": "trace-1"})
    assert engine.requests[-1].trace_id == "trace-1"
    assert engine.requests[-1].request_id.startswith("resp_")


async def test_input_tokens_are_counted_without_an_answer(client, engine):
    response = await client.post(f"{PATH}/input_tokens", json={"input": "Four", "instructions": "Six!!!"})
    assert response.json() == {"object": "response.input_tokens", "input_tokens": 11}
    assert engine.requests == []
