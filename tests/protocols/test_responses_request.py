from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_mlx_core.api import Chat, InvalidRequest, Settings
from vllm_mlx_protocols.responses.conversation import Conversation
from vllm_mlx_protocols.responses.items import normalised, seal, unseal
from vllm_mlx_protocols.responses.request import check, to_generate
from vllm_mlx_protocols.responses.schema import ResponsesRequest
from vllm_mlx_protocols.responses.tools import to_toolbox

ADD = {"type": "function", "name": "add", "description": "Add", "parameters": {"type": "object"}, "strict": True}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edit.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
}
USER = {"role": "user", "content": "Hi"}


def messages(*items, instructions=None):
    conversation = Conversation(instructions)
    conversation.extend(normalised(items))
    return conversation.messages


def generate(history=(), **fields):
    body = ResponsesRequest.model_validate({"input": "Hi", **fields})
    check(body, Settings())
    toolbox = to_toolbox(body.tools, body.tool_choice)
    return to_generate(body, toolbox, history, normalised(body.input), request_id="r1")


def call(call_id, **more):
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}", **more}


def called(call_id, name="add", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_nothing_said_leaves_every_default_to_the_model():
    request = generate()
    assert request.model == "default"
    assert request.prompt == Chat(messages=[USER])
    assert request.sampling.temperature is None
    assert request.sampling.logprobs is None
    assert request.tools_enabled
    assert request.parallel_tool_calls
    assert not request.call_required


def test_null_means_not_said():
    nulls = dict.fromkeys(set(ResponsesRequest.model_fields) - {"model", "input"})
    assert generate(**nulls) == generate()


def test_sampling_fields_reach_the_engine():
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "repetition_penalty": 1.1}
    fields |= {"presence_penalty": 0.2, "frequency_penalty": 0.3}
    request = generate(max_output_tokens=9, priority=-1, parallel_tool_calls=False, **fields)
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert (request.sampling.max_tokens, request.priority, request.parallel_tool_calls) == (9, -1, False)


def test_effort_is_a_template_variable_or_switches_thinking_off():
    assert generate(reasoning={"effort": "low"}).prompt.template_kwargs == {"reasoning_effort": "low"}
    off = {"enable_thinking": False, "thinking": False, "reasoning": False}
    assert generate(reasoning={"effort": "none"}).prompt.template_kwargs == off
    assert generate(reasoning={"summary": "auto"}).prompt.template_kwargs == {}


def test_instructions_come_before_the_history_and_the_history_before_the_input():
    history = normalised([{"role": "user", "content": "Before"}])
    texts = [message["content"] for message in generate(history, instructions="First").prompt.messages]
    assert texts == ["First", "Before", "Hi"]


def test_easy_and_full_messages_say_the_same():
    full = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert messages(USER) == messages(full) == [USER]
    parts = [{"type": "output_text", "text": "a", "annotations": []}, {"type": "refusal", "refusal": "b"}]
    assert messages({"role": "assistant", "content": parts})[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


def test_thoughts_text_and_calls_of_a_turn_are_one_message():
    thoughts = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": "See"}
    result = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]}
    assert messages(USER, thoughts, said, call("a"), call("b"), {"role": "assistant", "content": "."}, result) == [
        USER,
        {"role": "assistant", "content": "See.", "reasoning_content": "Hm.", "tool_calls": [called("a"), called("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    assert messages(thoughts, call("a")) == [
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [called("a")]}
    ]


def test_two_answers_without_calls_stay_two_messages():
    said = {"role": "assistant", "content": "See"}
    assert messages(said, said) == [said, said]


def test_thoughts_that_the_user_interrupted_are_not_the_next_answers():
    thoughts = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": "See"}
    assert messages(thoughts, USER, said) == [USER, said]


def test_custom_calls_are_calls_of_a_function_with_one_text():
    custom = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'x "y"'}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}
    assert messages(custom, result) == [
        {"role": "assistant", "content": None, "tool_calls": [called("c", "patch", '{"input": "x \\"y\\""}')]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]


def test_foreign_items_and_calls_that_were_cut_off_are_left_out():
    foreign = [{"type": "web_search_call", "id": "ws", "action": {}}, {"type": "computer_call_output", "output": {}}]
    assert messages(*foreign, USER, call("a", status="incomplete")) == [USER]


def test_sealed_thoughts_come_back_and_foreign_ones_do_not():
    assert unseal(seal("Grüße 日本")) == "Grüße 日本"
    for foreign in ("", "gAAAAAB", "not base64 at all", "AAAA"):
        assert unseal(foreign) == ""
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": seal("Hm.")}
    assert messages(sealed, call("a"))[0]["reasoning_content"] == "Hm."


def test_functions_and_custom_tools_are_offered_and_others_left_out():
    box = to_toolbox([ADD, PATCH, {"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}], None)
    add, patch = box.tools
    assert (add.name, add.description, add.parameters, add.strict) == ("add", "Add", {"type": "object"}, True)
    assert patch.parameters["properties"] == {"input": {"type": "string"}}
    assert patch.description == "Edit.\n\nThe input must follow this lark grammar:\nstart: X"
    assert (set(box.custom), list(box.given), box.required) == ({"patch"}, [ADD, PATCH], False)


@pytest.mark.parametrize(
    ("choice", "names", "required"),
    [
        ("auto", ["add", "patch"], False),
        ("required", ["add", "patch"], True),
        ({"type": "function", "name": "add"}, ["add"], True),
        ({"type": "custom", "name": "patch"}, ["patch"], True),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "patch"}]}, ["patch"], False),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}, ["add"], True),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, [], False),
    ],
)
def test_a_choice_limits_what_is_offered(choice, names, required):
    request = generate(tools=[ADD, PATCH], tool_choice=choice)
    assert [tool.name for tool in request.prompt.tools] == names
    assert (request.call_required, request.tools_enabled) == (required, True)


def test_no_tools_are_shown_to_a_model_that_must_not_call():
    request = generate(tools=[ADD], tool_choice="none")
    assert (request.prompt.tools, request.tools_enabled, request.call_required) == ((), False, False)


@pytest.mark.parametrize("choice", [{"type": "custom", "name": "add"}, {"type": "function", "name": "patch"}])
def test_a_choice_of_the_wrong_kind_names_no_tool(choice):
    with pytest.raises(InvalidRequest, match="not declared"):
        generate(tools=[ADD, PATCH], tool_choice=choice)


def test_every_field_has_its_line_on_the_page():
    page = Path(__file__).parents[2] / "docs" / "protocols" / "responses.md"
    rows = [line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(ResponsesRequest.model_fields) <= listed
