from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseFunctionToolCall

from .conftest import ARGUMENTS, CALL, WEATHER

TEXT = "Grüße 👩‍👩‍👧 日本語!"
TOOL: Any = {"type": "function", "strict": False, **WEATHER["function"]}
PATCH_CALL = (
    '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin Patch\\n*** End Patch"}}\n</tool_call>'
)
CODEX_TOOLS = [
    TOOL,
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
    },
    {"type": "local_shell"},
    {"type": "web_search", "external_web_access": False},
    {"type": "namespace", "name": "mcp", "description": "", "tools": []},
]


@pytest.fixture
def client(base_url):
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


def test_an_answer(client):
    answer = client.responses.create(model="default", input=TEXT, instructions="Echo.", metadata={"a": "b"})
    assert (answer.output_text, answer.status, answer.model) == (TEXT, "completed", "scripted")
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens == 0
    assert answer.metadata == {"a": "b"}


def test_a_stream_says_the_same(client):
    events = list(client.responses.create(model="default", input=TEXT, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert events[-1].response.output_text == TEXT
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_stream_helper_accumulates_a_response(client):
    with client.responses.stream(model="default", input="Look.\n" + CALL, tools=[TOOL]) as stream:
        types = [event.type for event in stream]
        final = stream.get_final_response()
    assert types.count("response.function_call_arguments.done") == 1
    message, call = final.output
    assert message.content[0].text.strip() == "Look."
    assert (call.name, json.loads(call.arguments)) == ("get_weather", ARGUMENTS)


def test_a_loop_of_calls_with_the_items_sent_back(client):
    items = [{"role": "user", "content": CALL}]
    first = client.responses.create(model="default", input=items, tools=[TOOL], store=False)
    (call,) = first.output
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    items.append({"role": "user", "content": "Thanks"})
    assert client.responses.create(model="default", input=items, tools=[TOOL], store=False).output_text == "Thanks"


def test_a_loop_of_calls_from_the_previous_response(client):
    first = client.responses.create(model="default", input=CALL, tools=[TOOL])
    output = {
        "type": "function_call_output",
        "call_id": first.output[0].call_id,
        "output": [{"type": "input_text", "text": "sunny"}],
    }
    thanks = {"role": "user", "content": [{"type": "input_text", "text": "Thanks"}]}
    second = client.responses.create(
        model="default", input=[output, thanks], tools=[TOOL], previous_response_id=first.id
    )
    assert second.output_text == "Thanks"
    assert second.usage.input_tokens > first.usage.input_tokens


def test_the_tools_of_a_coding_agent(client):
    with client.responses.stream(model="default", input=PATCH_CALL, tools=CODEX_TOOLS, store=False) as stream:
        events = list(stream)
    (call,) = events[-1].response.output
    assert (call.type, call.name, call.input) == ("custom_tool_call", "apply_patch", "*** Begin Patch\n*** End Patch")
    (done,) = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert done.input == call.input
    items = [{"role": "user", "content": PATCH_CALL}, call.model_dump(exclude_none=True)]
    items.append({"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done!"})
    items.append({"role": "user", "content": "Next"})
    assert client.responses.create(model="default", input=items, tools=CODEX_TOOLS, store=False).output_text == "Next"


def test_a_forced_call(client):
    choice = {"type": "function", "name": "get_weather"}
    answer = client.responses.create(model="default", input=CALL, tools=CODEX_TOOLS, tool_choice=choice)
    assert answer.output[0].name == "get_weather"


def test_reasoning_is_an_item_that_can_be_sent_back(client):
    text = "#open-think\nLet me think.</think>Done."
    answer = client.responses.create(
        model="default", input=text, include=["reasoning.encrypted_content"], reasoning={"effort": "low"}, store=False
    )
    thoughts, message = answer.output
    assert (thoughts.type, thoughts.content[0].text) == ("reasoning", "Let me think.")
    assert message.content[0].text == "Done."
    sealed = {"type": "reasoning", "summary": [], "id": thoughts.id, "encrypted_content": thoughts.encrypted_content}
    again = client.responses.create(
        model="default", input=[sealed, message.model_dump(), {"role": "user", "content": "And?"}], store=False
    )
    assert again.output_text == "And?"
    events = client.responses.create(model="default", input=text, stream=True)
    assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == "Let me think."


def test_a_limit_and_logprobs(client):
    answer = client.responses.create(
        model="default",
        input="abcdef",
        max_output_tokens=3,
        top_logprobs=2,
        include=["message.output_text.logprobs"],
    )
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    part = answer.output[0].content[0]
    assert part.text == "abc"
    assert [entry.token for entry in part.logprobs] == ["a", "b", "c"]
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_stored_responses(client):
    answer = client.responses.create(model="default", input="Hi")
    assert client.responses.retrieve(answer.id).output_text == "Hi"
    (item,) = client.responses.input_items.list(answer.id)
    assert item.content[0].text == "Hi"
    client.responses.delete(answer.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)


def test_pages_of_input_items_are_walked(client):
    items = [{"role": "user", "content": str(number)} for number in range(25)]
    answer = client.responses.create(model="default", input=items)
    listed = client.responses.input_items.list(answer.id, order="asc", limit=10)
    assert [item.content[0].text for item in listed] == [str(number) for number in range(25)]


def test_a_background_response(client):
    answer = client.responses.create(model="default", input="Later", background=True)
    while answer.status in ("queued", "in_progress"):
        answer = client.responses.retrieve(answer.id)
    assert (answer.status, answer.output_text) == ("completed", "Later")


def test_a_background_response_that_is_cancelled(client):
    answer = client.responses.create(model="default", input="x" * 50_000, background=True)
    assert client.responses.cancel(answer.id).status == "cancelled"
    assert client.responses.retrieve(answer.id).status == "cancelled"


def test_errors_are_the_sdks_own(client):
    with pytest.raises(openai.BadRequestError) as unknown:
        client.responses.create(model="default", input="x", previous_response_id="resp_nope")
    assert unknown.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError) as structured:
        client.responses.create(model="default", input="x", text={"format": {"type": "json_object"}})
    assert structured.value.param == "text.format"
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model="default", input="x" * 200_000)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model="default", input="no call", tools=[TOOL], tool_choice="required")


def test_a_stream_that_fails_is_told_to_the_client(client):
    stream = client.responses.create(
        model="default", input="no call", tools=[TOOL], tool_choice="required", stream=True
    )
    *_, wrong, failed = list(stream)
    assert (wrong.type, failed.type, failed.response.status) == ("error", "response.failed", "failed")
    assert failed.response.error.message == wrong.message


def test_input_tokens_are_those_that_an_answer_reports(client):
    counted = client.responses.input_tokens.count(model="default", input=TEXT, tools=[TOOL])
    assert counted.input_tokens == client.responses.create(model="default", input=TEXT, tools=[TOOL]).usage.input_tokens


@pytest.mark.anyio
async def test_the_async_client(base_url):
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        async with client.responses.stream(model="default", input=CALL, tools=[TOOL]) as stream:
            final = await stream.get_final_response()
        assert isinstance(final.output[0], ResponseFunctionToolCall)
        assert json.loads(final.output[0].arguments) == ARGUMENTS
        events = await client.responses.create(model="default", input="x" * 50_000, stream=True)
        await anext(aiter(events))
        await events.close()
        assert (await client.responses.create(model="default", input="still here")).output_text == "still here"
