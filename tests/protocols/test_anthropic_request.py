from __future__ import annotations

import pytest
from pydantic import ValidationError

from vllm_mlx_core.api import InvalidRequest, Settings
from vllm_mlx_protocols.anthropic.request import shows_thinking, to_generate
from vllm_mlx_protocols.anthropic.schema import CountTokensRequest, MessagesRequest

USER = {"role": "user", "content": "Hi"}
TOOL = {"name": "f", "description": "Does f.", "input_schema": {"type": "object", "properties": {}}}
OTHER = {"name": "g", "input_schema": {"type": "object"}, "type": "custom"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": [1]}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.37; cc_entrypoint=cli; cch={};"


def text(value):
    return {"type": "text", "text": value}


def ask(settings=Settings(), **fields):  # noqa: B008
    body = {"model": "m", "max_tokens": 10, "messages": [USER], **fields}
    return to_generate(MessagesRequest.model_validate(body), settings, request_id="msg_1")


def messages(*turns, **fields):
    return list(ask(messages=list(turns), **fields).prompt.messages)


def result(**fields):
    """What the model sees of one tool result."""
    turns = messages(
        USER,
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", **fields}]},
    )
    assert turns[-1]["role"] == "tool"
    assert turns[-1]["tool_call_id"] == "toolu_1"
    return turns[-1]["content"]


def refused(**fields):
    """The field that a refusal names, which its text must name as well."""
    with pytest.raises(InvalidRequest) as caught:
        ask(**fields)
    assert (caught.value.param or "nothing") in caught.value.message
    return caught.value.param


def test_the_system_prompt_is_a_string_or_blocks():
    assert messages(USER, system="Be brief.") == [{"role": "system", "content": "Be brief."}, USER]
    blocks = [text("Be brief."), {**text(""), "cache_control": {"type": "ephemeral"}}, text("Be kind.")]
    assert messages(USER, system=blocks)[0]["content"] == "Be brief.\n\nBe kind."
    assert messages(USER, system=[]) == messages(USER, system="") == [USER]


@pytest.mark.parametrize(
    "system",
    [
        lambda line: [text(line), text("You code.")],
        lambda line: [text(f"{line}\nYou code.")],
        lambda line: f"{line}\n\nYou code.",
    ],
)
def test_the_changing_line_of_coding_agents_is_not_in_the_prompt(system):
    first, second = (messages(USER, system=system(BILLING.format(cch))) for cch in ("a1b2c", "00000"))
    assert first == second == [{"role": "system", "content": "You code."}, USER]


def test_that_line_stays_where_it_is_part_of_what_is_said():
    said = "Explain:\n" + BILLING.format("x")
    assert messages(USER, system=said)[0]["content"] == said
    assert messages(USER, system=[text("You code."), text(said)])[0]["content"] == f"You code.\n\n{said}"


def test_system_messages_between_the_turns_stay_in_their_place():
    reminder = {"role": "system", "content": [text("Be brief.")]}
    assert messages(USER, reminder, USER) == [USER, {"role": "system", "content": "Be brief."}, USER]


def test_texts_of_a_user_are_paragraphs_and_those_of_an_assistant_one_text():
    assert messages({"role": "user", "content": [text("a"), text(""), text("b")]})[0]["content"] == "a\n\nb"
    assert messages(USER, {"role": "assistant", "content": [text("a"), text("b")]}, USER)[1]["content"] == "ab"


def test_a_call_and_its_results_come_in_the_order_of_templates():
    turns = messages(
        USER,
        {"role": "assistant", "content": [text("Look."), CALL, {**CALL, "id": "toolu_2", "input": {}}]},
        {
            "role": "user",
            "content": [
                text("Go on."),
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": [text("two"), text("three")]},
            ],
        },
    )
    assert turns[1] == {
        "role": "assistant",
        "content": "Look.",
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "f", "arguments": {"a": [1]}}},
            {"id": "toolu_2", "type": "function", "function": {"name": "f", "arguments": {}}},
        ],
    }
    assert turns[2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "one"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "two\n\nthree"},
        {"role": "user", "content": "Go on."},
    ]


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({}, ""),
        ({"content": ""}, ""),
        ({"content": []}, ""),
        ({"content": "ok", "is_error": False}, "ok"),
        ({"content": "no such file", "is_error": True}, "Error: no such file"),
        ({"is_error": True}, "Error"),
        ({"content": [text("seen"), IMAGE]}, "seen\n\n[image left out: this model reads text only]"),
        (
            {"content": [{"type": "tool_reference", "tool_name": "f"}]},
            "[tool_reference left out: this model reads text only]",
        ),
        (
            {"content": [{"type": "document", "title": "T", "source": {"type": "text", "data": "D"}}]},
            "T\n\nD",
        ),
        (
            {"content": [{"type": "search_result", "source": "file:a", "title": "T", "content": [text("found")]}]},
            "T\n\nfile:a\n\nfound",
        ),
    ],
)
def test_what_the_model_sees_of_a_result(fields, seen):
    assert result(**fields) == seen


def test_documents_with_a_text_are_read():
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "D"}, "context": "C"}
    blocks = {"type": "document", "source": {"type": "content", "content": [text("x"), text("y")]}}
    assert messages({"role": "user", "content": [plain, blocks]})[0]["content"] == "C\n\nD\n\nx\n\ny"


def test_thoughts_of_past_turns_reach_the_template_but_sealed_ones_cannot():
    blocks = [
        {"type": "thinking", "thinking": "hmm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xyz"},
        text("Hello"),
    ]
    turn = messages(USER, {"role": "assistant", "content": blocks}, USER)[1]
    assert turn == {"role": "assistant", "content": "Hello", "reasoning_content": "hmm"}


def test_a_last_turn_of_the_assistant_is_continued():
    prompt = ask(messages=[USER, {"role": "assistant", "content": "The answer is ("}]).prompt
    assert (prompt.continue_final_message, prompt.add_generation_prompt) == (True, False)
    prompt = ask().prompt
    assert (prompt.continue_final_message, prompt.add_generation_prompt) == (False, True)


def test_a_last_turn_without_text_is_left_out():
    prompt = ask(messages=[USER, {"role": "assistant", "content": []}]).prompt
    assert list(prompt.messages) == [USER]
    assert prompt.add_generation_prompt
    assert refused(messages=[{"role": "assistant", "content": ""}]) == "messages"


@pytest.mark.parametrize(
    ("thinking", "switch", "shown"),
    [
        (None, None, True),
        ({"type": "enabled", "budget_tokens": 1024}, True, True),
        ({"type": "adaptive", "display": "summarized"}, True, True),
        ({"type": "adaptive", "display": "omitted"}, True, False),
        ({"type": "between_tools"}, True, True),
        ({"type": "disabled"}, False, True),
    ],
)
def test_thinking_sets_the_variables_that_templates_read(thinking, switch, shown):
    expected = {} if switch is None else dict.fromkeys(("enable_thinking", "thinking", "reasoning"), switch)
    assert ask(thinking=thinking).prompt.template_kwargs == expected
    body = MessagesRequest.model_validate({"model": "m", "max_tokens": 1, "messages": [USER], "thinking": thinking})
    assert shows_thinking(body) is shown


def test_effort_is_a_variable_of_the_template():
    assert ask(output_config={"effort": "high"}).prompt.template_kwargs == {"reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("choice", "offered", "allowed", "required", "parallel"),
    [
        (None, "fg", True, False, True),
        ({"type": "auto"}, "fg", True, False, True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "fg", True, False, False),
        ({"type": "any"}, "fg", True, True, True),
        ({"type": "any", "disable_parallel_tool_use": True}, "fg", True, True, False),
        ({"type": "tool", "name": "g"}, "g", True, True, True),
        ({"type": "none"}, "", False, False, True),
    ],
)
def test_the_choice_of_tools(choice, offered, allowed, required, parallel):
    request = ask(tools=[TOOL, OTHER], tool_choice=choice)
    assert "".join(tool.name for tool in request.prompt.tools) == offered
    assert (request.tools_enabled, request.call_required, request.parallel_tool_calls) == (allowed, required, parallel)


def test_a_tool_keeps_its_description_and_schema():
    (tool,) = ask(tools=[{**TOOL, "cache_control": {"type": "ephemeral"}, "input_examples": [{}]}]).prompt.tools
    assert (tool.name, tool.description, tool.parameters) == ("f", "Does f.", TOOL["input_schema"])


def test_sampling():
    sampling = ask(temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["STOP"]).sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (10, 0.5, 0.9, 40)
    assert sampling.stop == ("STOP",)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": [text("a"), IMAGE]}]}, "messages[0].content[1].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "base64"}}]}]},
            "messages[0].content[0].source",
        ),
        ({"messages": [{"role": "user", "content": [CALL]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id"),
        ({"messages": [USER, {"role": "assistant", "content": [CALL]}]}, "messages[1].content"),
        (
            {"messages": [USER, {"role": "assistant", "content": [{"type": "server_tool_use"}]}]},
            "messages[1].content[0].type",
        ),
        (
            {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]}]},
            "messages[1].content[0].name",
        ),
        ({"messages": [{"role": "system", "content": [IMAGE]}]}, "messages[0].content[0].type"),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [{**TOOL, "input_schema": {"description": "x" * 300_000}}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ({"output_format": {"type": "json_schema"}}, "output_format"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"max_tokens": 11, "settings": Settings(max_request_tokens=10)}, "max_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields, param):
    assert refused(**fields) == param


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"max_tokens": "10"},
        {"max_tokens": None},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"temperature": 2.1},
        {"top_p": 0.0},
        {"thinking": {"type": "enabled", "budget_tokens": 0}},
        {"thinking": {"type": "enabled", "budget_tokens": 8, "display": "loud"}},
        {"stop_sequences": [""]},
        {"tool_choice": {"type": "all"}},
    ],
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValidationError):
        ask(**fields)


def test_what_changes_nothing_is_accepted():
    ignored = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "container": "c",
        "inference_geo": "eu",
        "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": []},
        "mcp_servers": [],
        "speed": "fast",
        "of_tomorrow": [1],
    }
    assert ask(**ignored) == ask()


def test_counting_asks_for_the_same_prompt():
    prompt = {"system": "s", "tools": [TOOL], "thinking": {"type": "disabled"}, "messages": [USER]}
    counted = to_generate(CountTokensRequest.model_validate({"model": "m", **prompt}), Settings(), request_id="c")
    assert counted.prompt == ask(**prompt).prompt
