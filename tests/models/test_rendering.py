"""Chat rendering, with templates in the manner of the families that clients meet."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import Chat, InvalidRequest, ModelError, Tool
from vllm_mlx_models.rendering import ChatRenderer
from vllm_mlx_models.template import MAX_SOURCE, ChatTemplate, compile_template

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
SYSTEM_FIRST = """\
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}
{{- '[' + message.role + ']' + message.content }}
{%- endfor %}
"""
NO_SYSTEM = """\
{%- for message in messages %}
{%- if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}
{{- '<start_of_turn>' + message['role'] + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
"""
DROPS_LATE_SYSTEM = """\
{%- if messages[0].role in ['developer', 'system'] %}{{ '[developer]' + messages[0].content }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}{{ '[user]' + message.content }}
{%- elif message.role == 'assistant' %}{{ '[assistant]' + message.content }}
{%- endif %}
{%- endfor %}
"""
CALLS = """\
{%- for message in messages %}
{{- message.role + ':' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<' + call.function.name }}
{%- for key, value in call.function.arguments | items %}{{ ' ' + key + '=' + (value | tojson) }}{% endfor %}
{{- '>' }}
{%- endfor %}
{%- endfor %}
"""
CALLS_AS_TEXT = """\
{%- for message in messages %}
{%- for call in message.tool_calls or [] %}
{{- '```json\\n' + call['function']['arguments'] + '\\n```' }}{{ call.function.arguments }}
{%- else %}{{ message.content }}
{%- endfor %}
{%- endfor %}
"""
MISTRAL = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.tool_calls is defined %}
{%- for call in message.tool_calls %}
{%- if call.id is not defined or call.id | length != 9 %}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
{%- endif %}
{{- '[CALL ' + call.id + ']' + call.function.arguments }}
{%- endfor %}
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception('length 9!') }}{% endif %}
{{- '[RESULT ' + message.tool_call_id + ']' + message.content }}
{%- else %}{{- '[' + message.role + ']' + message.content }}
{%- endif %}
{%- endfor %}
"""


def user(content="Hi", **more):
    return {"role": "user", "content": content, **more}


def assistant(content="Hello", **more):
    return {"role": "assistant", "content": content, **more}


def system(content="Be brief.", **more):
    return {"role": "system", "content": content, **more}


def call(arguments, name="get_weather", call_id="call_3f2a-long"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.fixture
def render(with_template):
    def run(template, *messages, **chat):
        return with_template(template).render(Chat(messages=messages, **chat)).text

    return run


# -- content ----------------------------------------------------------------------------------------------------------


def test_text_parts_are_joined_in_order_by_a_newline(render):
    parts = [{"type": "text", "text": "A"}, {"type": "input_text", "text": "B"}, "C"]
    assert render(CHATML, system(parts), user(parts), add_generation_prompt=False) == (
        "<|im_start|>system\nA\nB\nC<|im_end|>\n<|im_start|>user\nA\nB\nC<|im_end|>\n"
    )


@pytest.mark.parametrize("message", [user(None), {"role": "user"}, user([])])
def test_missing_content_is_empty(render, message):
    assert render(CHATML, message, add_generation_prompt=False) == "<|im_start|>user\n<|im_end|>\n"


@pytest.mark.parametrize("kind", ["image_url", "image", "input_image", "input_audio", "video_url"])
def test_parts_that_a_text_model_cannot_read_are_refused_by_place(render, kind):
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.content\[1\]: this model reads text only") as caught:
        render(CHATML, user(), user([{"type": "text", "text": "A"}, {"type": kind}]))
    assert caught.value.param == "messages[1].content[1]"


@pytest.mark.parametrize("part", [{"type": "hologram"}, {}, 3, {"type": "text"}, {"type": "text", "text": 3}])
def test_malformed_parts_are_refused_by_place(render, part):
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.content\[0\]"):
        render(CHATML, user([part]))


@pytest.mark.parametrize("content", [3, {"type": "text", "text": "A"}, b"A"])
def test_other_content_is_refused_by_place(render, content):
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.content"):
        render(CHATML, user(content))


@pytest.mark.parametrize("role", [None, "", 3])
def test_a_message_needs_a_role(render, role):
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.role"):
        render(CHATML, {"role": role, "content": "A"})


def test_a_conversation_needs_a_message(render):
    with pytest.raises(InvalidRequest, match="at least one message"):
        render(CHATML)


def test_what_the_client_sent_is_not_changed(render):
    message = assistant(None, tool_calls=[call('{"a": 1}')])
    before = json.dumps(message)
    render(CALLS, user(), message)
    assert json.dumps(message) == before


# -- tool calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "rendered"),
    [
        ('{"city": "Zürich", "days": 3}', ' city="Zürich" days=3'),
        ({"city": "Zürich", "days": 3}, ' city="Zürich" days=3'),
        (json.dumps('{"days": 3}'), " days=3"),
        ("", ""),
        ("  ", ""),
        (None, ""),
        ("null", ""),
        ('{"city": "Par', ' _raw="{\\"city\\": \\"Par"'),
        ("[1]", ' _raw="[1]"'),
        ("[" * 5000, f' _raw="{"[" * 5000}"'),
        (f"{'[' * 5000}1{']' * 5000}", f' _raw="{"[" * 5000}1{"]" * 5000}"'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_arguments_reach_the_template_as_an_object(render, arguments, rendered):
    text = render(CALLS, user(), assistant(None, tool_calls=[call(arguments)]))
    assert text == f"user:Hiassistant:<get_weather{rendered}>"


def nested(levels):
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("chat", "param"),
    [
        (
            Chat(messages=[user()], tools=[Tool("f"), Tool("g", parameters={"a": nested(200)})]),
            "tools[1].function.parameters",
        ),
        (Chat(messages=[user(), {**user(), "extra": nested(200)}]), "messages[1].extra"),
        (Chat(messages=[user()], template_kwargs={"deep": nested(200)}), "chat_template_kwargs"),
    ],
)
def test_what_is_nested_too_deeply_for_templates_is_refused_by_name(chat, param):
    with pytest.raises(InvalidRequest, match="nested more than 128 levels deep") as caught:
        ChatRenderer(ChatTemplate("{{ messages[0].content }}{{ tools }}{{ deep }}", {})).render(chat)
    assert caught.value.param == param


def test_a_call_without_arguments_is_rendered(render):
    message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "ping"}}]}
    assert render(CALLS, user(), message) == "user:Hiassistant:<ping>"


def test_a_template_that_takes_arguments_for_text_gets_json(render):
    text = render(CALLS_AS_TEXT, user("?"), assistant(None, tool_calls=[call('{"ä": [1, null]}')]))
    assert text == '?```json\n{"ä": [1, null]}\n```{"ä": [1, null]}'


def test_null_content_beside_calls_renders_like_empty_content(render):
    calls = [call("{}")]
    texts = {
        render(CALLS, user(), {"role": "assistant", "tool_calls": calls, **content})
        for content in ({}, {"content": None}, {"content": ""})
    }
    assert len(texts) == 1
    assert "None" not in texts.pop()


@pytest.mark.parametrize("calls", [None, []])
def test_no_calls_are_as_if_the_field_were_not_there(render, calls):
    template = "{% for m in messages %}{{ 'calls' if 'tool_calls' in m else 'none' }}{% endfor %}"
    assert render(template, assistant("A", tool_calls=calls)) == "none"


@pytest.mark.parametrize("bad", [{}, "x", {"function": {"arguments": "{}"}}])
def test_a_malformed_call_is_refused_by_place(render, bad):
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.tool_calls\[0\]"):
        render(CALLS, assistant(None, tool_calls=[bad]))


def test_a_tool_message_knows_the_name_of_its_call_and_takes_parts(render):
    template = "{% for m in messages %}{{ m.role ~ '/' ~ m.name ~ '/' ~ m.content ~ m.tool_calls }}{% endfor %}"
    answer = {"role": "tool", "tool_call_id": "7", "content": [{"type": "text", "text": "sunny"}]}
    text = render(template, assistant(None, tool_calls=[call("{}", call_id="7")]), answer)
    assert "tool/get_weather/sunny" in text


def test_tools_are_plain_json_with_keys_in_order_and_unicode(render):
    template = "{{ tools | tojson }}"
    tool = Tool("f", None, {"type": "object", "properties": {"z": {"description": "größe <&>"}, "a": {}}})
    assert render(template, user(), tools=[tool]) == (
        '[{"type": "function", "function": {"name": "f", "description": "", "parameters": '
        '{"type": "object", "properties": {"z": {"description": "größe <&>"}, "a": {}}}}}]'
    )


def test_no_tools_are_none(render):
    assert render("{{ tools is none }}", user()) == "True"


def test_mistral_ids_are_shortened_alike_in_call_and_answer(render):
    text = render(
        MISTRAL,
        user(),
        assistant(None, tool_calls=[call("{}"), call("{}", call_id="abcDEF123")]),
        {"role": "tool", "tool_call_id": "call_3f2a-long", "content": "1"},
        {"role": "tool", "tool_call_id": "abcDEF123", "content": "2"},
    )
    ids = re.findall(r"\[(?:CALL|RESULT) ([A-Za-z0-9]{9})\]", text)
    assert ids[:2] == ids[2:]
    assert ids[1] == "abcDEF123"
    assert ids[0] != ids[1]


def test_kimi_ids_number_the_calls_of_the_conversation_and_name_their_function(render):
    template = "<|tool_calls_section_begin|>{{ messages }}"
    text = render(
        template,
        user(),
        assistant(None, tool_calls=[call("{}"), call("{}", name="f", call_id="functions.f:1")]),
        {"role": "tool", "tool_call_id": "call_3f2a-long", "content": "1"},
        {"role": "tool", "tool_call_id": "functions.f:1", "content": "2"},
        assistant(None, tool_calls=[call("{}", name="g", call_id="")]),
    )
    ids = re.findall(r"functions\.\w+:\d+", text)
    assert ids == ["functions.get_weather:0", "functions.f:1"] * 2 + ["functions.g:2"]


@pytest.mark.parametrize(
    ("names", "given", "shown"),
    [
        ("ff", ["functions.f:1", "x"], ["functions.f:1", "functions.f:2"]),
        ("fff", ["x", "y", "functions.f:1"], ["functions.f:0", "functions.f:1", "functions.f:2"]),
        ("fgf", ["functions.f:0"] * 3, ["functions.f:0", "functions.g:1", "functions.f:2"]),
        (["a:b", "a:b"], ["x", "x"], ["functions.a:b:0", "functions.a:b:1"]),
    ],
)
def test_no_two_calls_of_kimi_s_share_an_id(render, names, given, shown):
    turns = [
        message
        for name, call_id in zip(names, given, strict=True)
        for message in (assistant(None, tool_calls=[call("{}", name=name, call_id=call_id)]), result(name, call_id))
    ]
    text = render(PAIRS + "{# <|tool_calls_section_begin|> #}", user(), *turns)
    pairs = zip(names, shown, strict=True)
    assert text == "".join(f"<{call_id} {name}{{}}>({call_id} {name} {name})" for name, call_id in pairs)


def test_ids_reach_other_templates_unchanged(render):
    text = render("{{ messages }}", assistant(None, tool_calls=[call("{}", call_id="functions.f:0")]))
    assert "'functions.f:0'" in text


ONE_CALL = """\
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{{- '<' ~ message.tool_calls[0].function.arguments ~ '>' }}
{%- else %}{{- message.role ~ ':' ~ message.content ~ ' ' }}
{%- endif %}
{%- endfor %}
"""
FIRST_CALL_ONLY = ONE_CALL.replace("> 1", "> 99")


@pytest.mark.parametrize("template", [ONE_CALL, FIRST_CALL_ONLY])
def test_a_template_for_single_calls_is_given_one_after_the_other_each_with_its_answer(render, template):
    calls = [call({"n": 1}, call_id="a"), call({"n": 2}, call_id="b")]
    text = render(
        template,
        user(),
        assistant(None, tool_calls=calls),
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        user("Thanks"),
    )
    assert text == 'user:Hi <{"n": 1}>tool:one <{"n": 2}>tool:two user:Thanks '


def test_answers_without_ids_go_to_the_calls_in_order(render):
    calls = [call({"n": 1}), call({"n": 2})]
    for made in calls:
        del made["id"]
    answers = [{"role": "tool", "content": text} for text in ("one", "two", "three")]
    text = render(ONE_CALL, user(), assistant(None, tool_calls=calls), *answers)
    assert text == 'user:Hi <{"n": 1}>tool:one <{"n": 2}>tool:two tool:three '


def test_parallel_calls_stay_together_where_the_template_shows_them(render):
    calls = [call({"n": 1}, call_id="a"), call({"n": 2}, call_id="b")]
    assert render(CALLS, user(), assistant("Both", tool_calls=calls)).count("assistant:") == 1


def test_tools_reach_templates_that_call_them_otherwise(render):
    assert "get_weather" in render("{{ xml_tools | tojson }}", user(), tools=[Tool("get_weather", "", {})])
    assert render("{{ xml_tools is defined }}", user()) == "False"
    chosen = render("{{ xml_tools }}", user(), tools=[Tool("f", "", {})], template_kwargs={"xml_tools": []})
    assert chosen == "[]"


def test_a_template_that_wants_a_list_of_tools_gets_an_empty_one(render):
    assert render("{% for tool in tools %}{{ tool }}{% endfor %}{{ messages[0].content }}", user()) == "Hi"


@pytest.mark.parametrize("change", ["append(1)", "pop()", "insert(0, 1)", "extend([1])"])
def test_a_template_may_change_lists_but_only_its_own(render, change):
    kwargs, tools = {"extra": [1, 2]}, [Tool("f", "", {"required": ["a"]})]
    template = (
        "{% set _ = extra.CHANGE %}{% set _ = tools[0].function.parameters.required.CHANGE %}"
        "{% set _ = messages.CHANGE %}{{ extra | length }}"
    ).replace("CHANGE", change)
    texts = {render(template, user(), tools=tools, template_kwargs=kwargs) for _ in range(2)}
    assert len(texts) == 1
    assert (kwargs, tools[0].parameters) == ({"extra": [1, 2]}, {"required": ["a"]})


@pytest.mark.parametrize("forbidden", ["messages.clear()", "messages[0].clear()", "messages.__class__.__mro__"])
def test_the_sandbox_stays_closed_otherwise(render, forbidden):
    with pytest.raises(InvalidRequest, match=r"unsafe|not"):
        render("{{ " + forbidden + " }}", user())


# -- roles ------------------------------------------------------------------------------------------------------------


def test_developer_is_system(render):
    assert "<|im_start|>system\nBe brief." in render(CHATML, {"role": "developer", "content": "Be brief."}, user())


def test_developer_stays_where_the_template_knows_it(render):
    template = "{% for m in messages %}{{ m.role }}{% if m.role == 'developer' %}!{% endif %}{% endfor %}"
    assert render(template, {"role": "developer", "content": ""}) == "developer!"


def test_a_late_system_message_stays_in_place_where_it_may(render):
    text = render(CHATML, user("A"), system("B"), user("C"), add_generation_prompt=False)
    assert re.findall(r"<\|im_start\|>(\w+)\n(\w)", text) == [("user", "A"), ("system", "B"), ("user", "C")]


def test_a_late_system_message_goes_into_the_user_turn_beside_it_where_it_must(render):
    text = render(SYSTEM_FIRST, system("A"), user("B"), assistant("C"), system("D"), user("E"))
    assert text == "[system]A[user]B[assistant]C[user]D\n\nE"
    assert render(SYSTEM_FIRST, system("A"), user("B"), system("D"), assistant("C")).endswith(
        "[user]B\n\nD[assistant]C"
    )
    assert render(SYSTEM_FIRST, system("A"), user("B"), assistant("C"), system("D")).endswith("[assistant]C[user]D")


def test_a_late_system_message_does_not_change_how_the_prompt_starts(render):
    messages = [system("A"), user("B"), assistant("C"), system("D"), user("E"), assistant("F"), system("G"), user("H")]
    for template in (SYSTEM_FIRST, DROPS_LATE_SYSTEM, NO_SYSTEM):
        texts = [render(template, *messages[:count]) for count in (2, 5, 8)]
        assert texts[1].startswith(texts[0])
        assert texts[2].startswith(texts[1])


def test_a_system_message_between_calls_and_results_comes_after_the_results(render):
    template = SYSTEM_FIRST.replace("message.content }}", "message.content ~ (message.tool_calls or '') }}")
    calls = assistant("", tool_calls=[call("{}", call_id="1"), call("{}", call_id="2")])
    answers = [{"role": "tool", "tool_call_id": call_id, "content": f"R{call_id}"} for call_id in "12"]
    text = render(template, system("A"), user("B"), calls, system("C"), *answers, assistant("D"))
    assert text.endswith("[tool]R1[tool]R2[user]C[assistant]D")


def test_several_system_messages_at_the_start_become_one_where_they_must(render):
    assert render(SYSTEM_FIRST, system("A"), system("B"), user("C")) == "[system]A\n\nB[user]C"


def test_without_a_first_system_message_a_late_one_does_not_become_it(render):
    assert render(SYSTEM_FIRST, user("B"), system("D"), user("E")) == "[user]B[user]D\n\nE"


def test_a_system_message_that_the_template_would_drop_is_kept(render):
    text = render(DROPS_LATE_SYSTEM, system("A"), user("B"), system("D"), user("E"))
    assert text == "[developer]A[user]B[user]D\n\nE"


def test_without_a_system_role_the_text_goes_into_the_next_user_turn(render):
    text = render(NO_SYSTEM, system("A"), user("B"), assistant("C"), system("D"), user("E"))
    assert text == (
        "<start_of_turn>user\nA\n\nB<end_of_turn>\n<start_of_turn>assistant\nC<end_of_turn>\n"
        "<start_of_turn>user\nD\n\nE<end_of_turn>\n"
    )


def test_a_system_message_at_the_end_joins_the_last_user_turn(render):
    assert "user\nB\n\nA<end_of_turn>" in render(NO_SYSTEM, user("B"), system("A"))


def test_a_lone_system_message_becomes_a_user_turn(render):
    assert render(NO_SYSTEM, system("A")) == "<start_of_turn>user\nA<end_of_turn>\n"


def test_neighbours_of_one_role_are_joined_where_roles_must_alternate(render):
    text = render(NO_SYSTEM, user("A"), user("B"), assistant("C"))
    assert text == "<start_of_turn>user\nA\n\nB<end_of_turn>\n<start_of_turn>assistant\nC<end_of_turn>\n"


def test_a_template_that_rewrites_system_text_is_taken_at_its_word(render):
    assert render("{% for m in messages %}[{{ m.content | upper }}]{% endfor %}", system("a"), user("b")) == "[A][B]"


NO_USER_AFTER_TOOL = """\
{%- for message in messages %}
{%- if message.role == 'user' and loop.index0 and messages[loop.index0 - 1].role == 'tool' %}
{{- raise_exception('roles must alternate') }}
{%- endif %}
{%- if message.role != 'system' %}{{- '[' ~ message.role ~ ']' ~ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}{{ call.function.arguments }}{% endfor %}
{%- endfor %}
"""


def test_a_system_message_after_results_is_a_user_turn_that_the_template_takes(render):
    answer = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
    calls = assistant("", tool_calls=[call("{}", call_id="1")])
    text = render(NO_USER_AFTER_TOOL, system("A"), user("B"), calls, answer, system("C"))
    assert text == "[user]A\n\nB[assistant]{}[tool]sunny[assistant]Done.[user]C"


STRICT_TURNS = """\
{%- set ns = namespace(n=0) %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
{%- if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if m.role == 'assistant' and not m.content %}{{ raise_exception('say something') }}{% endif %}
{%- set ns.n = ns.n + 1 %}
{%- endif %}
{{- '[' ~ m.role ~ ']' ~ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}
{%- endfor %}
"""
ANSWER = {"role": "tool", "tool_call_id": "1", "content": "sunny"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([user("A"), user("B")], "[user]A\n\nB"),
        ([user("A", cache_control={}), user("B", annotations=[])], "[user]A\n\nB"),
        ([user("A"), assistant("B"), assistant("C", reasoning="R"), user("D")], "[user]A[assistant]B\n\nC[user]D"),
        ([user("A"), assistant(None), user("B")], "[user]A\n\nB"),
        ([user("A"), assistant(None, tool_calls=[])], "[user]A"),
        ([assistant("A"), user("B")], "[user][assistant]A[user]B"),
        ([system("S"), assistant("A"), user("B")], "[user]S[assistant]A[user]B"),
        (
            [user("A"), assistant(None, tool_calls=[call("{}", call_id="1")]), ANSWER, user("B")],
            "[user]A[assistant]{}[tool]sunny[assistant]Done.[user]B",
        ),
        (
            [user("A"), assistant(None, tool_calls=[call("{}", call_id="1")]), user("B")],
            "[user]A[assistant]{}[assistant]Done.[user]B",
        ),
    ],
)
def test_where_turns_must_alternate_what_agents_send_is_made_to(render, messages, text):
    template = STRICT_TURNS.replace(
        "{%- for m", "{%- if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{%- for m", 1
    )
    assert render(template, *messages) == text


def test_a_template_that_changes_its_messages_does_not_change_what_others_are_found_to_need(render):
    shows_all = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    render(shows_all + "{% for _ in messages[1:] %}{% set _ = messages.pop() %}{% endfor %}", user("A"), user("B"))
    assert render(STRICT_TURNS, user("A"), user("B")) == "[user]A\n\nB"


def test_a_system_message_keeps_its_role_while_turns_are_made_to_alternate(render):
    assert render(STRICT_TURNS, system("S"), user("A"), user("B")) == "[system]S[user]A\n\nB"


NO_STRAYS = """\
{%- for m in messages %}
{%- if m.role == 'tool' and (loop.first or not (loop.previtem.role == 'tool' or loop.previtem.tool_calls)) %}
{{- raise_exception('a result of what?') }}
{%- endif %}
{{- '[' ~ m.role ~ ']' ~ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}
{%- endfor %}
"""


@pytest.mark.parametrize(
    "template", [NO_STRAYS, NO_STRAYS.replace("{{- raise_exception('a result of what?') }}", "{%- continue %}")]
)
def test_results_whose_call_is_gone_are_told_by_the_user_where_the_template_refuses_or_drops_them(render, template):
    text = render(template, ANSWER, user("A"), assistant("B"), ANSWER, user("C"))
    told = "[user]<tool_response>\nsunny\n</tool_response>"
    assert text == f"{told}[user]A[assistant]B{told}[user]C"
    calls = assistant("", tool_calls=[call("{}", call_id="1")])
    assert render(template, user("A"), calls, ANSWER) == "[user]A[assistant]{}[tool]sunny"


def test_a_template_that_takes_results_without_calls_gets_them_as_they_are(render):
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}{% endfor %}"
    assert render(template, ANSWER, user("A")) == "[tool]sunny[user]A"


# -- calls and results belong together --------------------------------------------------------------------------------

PAIRS = """\
{%- for m in messages %}
{%- for c in m.tool_calls %}{{ '<' ~ c.id ~ ' ' ~ c.function.name ~ c.function.arguments ~ '>' }}{% endfor %}
{%- if m.role == 'tool' %}{{ '(' ~ m.tool_call_id ~ ' ' ~ m.name ~ ' ' ~ m.content ~ ')' }}{% endif %}
{%- endfor %}
"""


def result(content, call_id=None, **more):
    return {"role": "tool", "content": content, **({} if call_id is None else {"tool_call_id": call_id}), **more}


@pytest.mark.parametrize(
    ("ids", "results", "text"),
    [
        ((None, None), (result("r"), result("s")), "<call_0 f{}><call_1 g{}>(call_0 f r)(call_1 g s)"),
        ((7, 8), (result("r", 8), result("s", 7)), "<7 f{}><8 g{}>(8 g r)(7 f s)"),
        (("a", "a"), (result("r", "a"), result("s", "a")), "<a f{}><a_ g{}>(a f r)(a_ g s)"),
        (("a", "b"), (result("r", "x"), result("s", "a")), "<a f{}><b g{}>(b g r)(a f s)"),
        (("a", "b"), (result("r", "b", name="own"),), "<a f{}><b g{}>(b own r)"),
        (("a", "b"), (result("r"), result("s"), result("t", "a")), "<a f{}><b g{}>(b g r)(  s)(a f t)"),
        (([], True), (result("r", {}),), "<call_0 f{}><call_1 g{}>(call_0 f r)"),
    ],
)
def test_results_find_their_calls_whatever_ids_clients_send(render, ids, results, text):
    calls = [call("{}", name=name, call_id=call_id) for name, call_id in zip("fg", ids, strict=True)]
    assert render(PAIRS, user(), assistant(None, tool_calls=calls), *results) == text


def test_ids_that_are_used_again_in_a_later_turn_name_the_later_call(render):
    turns = [
        message
        for name in "fg"
        for message in (assistant(None, tool_calls=[call("{}", name=name, call_id="1")]), result(name, "1"))
    ]
    assert render(PAIRS, user(), *turns) == "<1 f{}>(1 f f)<1 g{}>(1 g g)"


def test_a_result_that_comes_late_still_has_the_name_of_its_call(render):
    messages = [assistant(None, tool_calls=[call("{}", name="f", call_id="1")]), user("wait"), result("r", "1")]
    assert render(PAIRS, user(), *messages) == "<1 f{}>(1 f r)"


def test_a_longer_conversation_starts_like_a_shorter_one(render):
    messages = [system(), user("A")]
    for i in range(4):
        calls = [call(f'{{"n": {i}}}', call_id=call_id) for call_id in (None, 3, "x", "x")]
        messages += [assistant(f"T{i}", tool_calls=calls), *(result(f"r{i}{n}") for n in range(4)), user(f"U{i}")]
    kimi = PAIRS + "{# <|tool_calls_section_begin|> #}"
    for template in (PAIRS, CHATML, STRICT_TURNS, ONE_CALL, kimi):
        texts = [render(template, *messages[:n], add_generation_prompt=False) for n in range(8, len(messages) + 1, 6)]
        assert all(longer.startswith(shorter) for shorter, longer in itertools.pairwise(texts))


# -- schemas ----------------------------------------------------------------------------------------------------------

DEMANDING = """\
{%- macro kind(s) %}{% if s.type is string %}{{ s.type }}{% elif s.type %}{% for t in s.type %}{{ kind({'type': t}) }}
{%- if t == 'null' %}{{ 1 / 0 }}{% endif %}{% endfor %}{% endif %}
{%- if 'x' in s.get('items', {}).get('enum', []) %}{% endif %}{% endmacro %}
{%- for t in tools %}{{ t.function.name }}{% for name, s in t.function.parameters.properties.items() %}
{{- ' ' ~ name ~ ':' ~ kind(s) ~ s.description.split('x')[0] }}{% if s.get('enum') %}!{% endif %}
{%- endfor %}{% endfor %}{{ messages[0].content }}"""


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (None, ""),
        ({}, ""),
        ({"type": "object"}, ""),
        ({"type": "object", "properties": None, "required": None}, ""),
        ({"anyOf": [{"type": "object"}]}, ""),
        ({"properties": {"a": True}}, " a:"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, " a:string"),
        ({"properties": {"a": {"type": ["string", "integer", "null"]}}}, " a:stringinteger"),
        ({"properties": {"a": {"type": "string", "description": None, "enum": None}}}, " a:string"),
        ({"properties": {"a": {"type": "array", "items": True}}}, " a:array"),
        ({"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}}, " a:array"),
        (
            {"properties": {"items": {"type": "string"}, "properties": {"type": "integer"}}},
            " items:string properties:integer",
        ),
    ],
)
def test_schemas_that_validators_take_are_put_into_what_templates_take(render, schema, shown):
    assert render(DEMANDING, user("Hi"), tools=[Tool("f", None, schema)]) == f"f{shown}Hi"


def test_keywords_that_are_null_are_left_out_but_null_as_a_value_is_kept(render):
    schema = {"properties": {"a": {"type": None, "default": None, "const": None, "enum": [None]}}, "required": None}
    text = render("{{ tools[0].function.parameters | tojson }}", user(), tools=[Tool("f", None, schema)])
    assert json.loads(text) == {"properties": {"a": {"default": None, "const": None, "enum": [None]}}}


def test_a_refusal_says_what_is_wrong_after_all_rearranging(render):
    with pytest.raises(InvalidRequest, match=r"refuses messages\[3\]: Conversation roles must alternate"):
        render(NO_SYSTEM, system("A"), user("B"), assistant(), {"role": "critic", "content": "dull"}, user("C"))


def test_what_cannot_be_rendered_names_the_message(render):
    template = (
        "{% for m in messages %}{% if m.role == 'critic' %}{{ raise_exception('no critics') }}{% endif %}{% endfor %}"
    )
    with pytest.raises(InvalidRequest, match=r"refuses messages\[2\]: no critics") as caught:
        render(template, user(), assistant(), {"role": "critic", "content": "x"}, user())
    assert caught.value.param == "messages[2]"


@pytest.mark.parametrize("template", ["{{ messages[0].nope.nope }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}"])
def test_a_template_that_fails_is_a_bad_request_without_paths(render, template):
    with pytest.raises(InvalidRequest, match="cannot render") as caught:
        render(template, user())
    assert ".py" not in caught.value.message
    assert "Traceback" not in caught.value.message


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking", "thought"])
@pytest.mark.parametrize("access", ["message.{}", "message['{}']", "message.get('{}')"])
@pytest.mark.parametrize("sent", ["reasoning_content", "reasoning"])
def test_reasoning_reaches_templates_under_the_name_they_read(render, name, access, sent):
    template = "{% for message in messages %}{{ " + access.format(name) + " }}{% endfor %}"
    assert render(template, assistant("A", **{sent: "R"})) == "R"


def test_a_template_that_reads_several_names_is_given_reasoning_once(render):
    template = "{% for m in messages %}{{ (m.reasoning_content or '') ~ (m.thinking or '') }}{% endfor %}"
    assert render(template, assistant("A", reasoning_content="R")) == "R"


def test_reasoning_becomes_a_part_where_a_template_wants_parts(render):
    template = """{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}
    {%- for part in m.content %}
    {%- if part['type'] == 'thinking' %}{{ '[THINK]' + part['thinking'] + '[/THINK]' }}{% else %}{{ part['text'] }}
    {%- endif %}{% endfor %}{% endif %}{% endfor %}"""
    assert render(template, user("Q"), assistant("A", reasoning_content="R")) == "Q[THINK]R[/THINK]A"


def test_text_and_thinking_share_a_place_where_a_call_may_have_only_one(render):
    template = """{% for m in messages %}{% if m.tool_calls and m.thinking and m.content %}{{ raise_exception('both') }}
    {%- endif %}{{ m.thinking or m.content }}{{ m.tool_calls }}{% endfor %}"""
    text = render(template, user(), assistant("Let me see.", reasoning_content="Hm.", tool_calls=[call("{}")]))
    assert "Hm.\n\nLet me see." in text


def test_only_a_list_is_a_list_of_calls(render):
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.tool_calls must be a list"):
        render(CALLS, assistant("", tool_calls={"a": 1}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
CALL = st.fixed_dictionaries({"id": JSON, "function": st.fixed_dictionaries({"name": st.text(), "arguments": JSON})})
PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "x"]), "text": st.text() | JSON})
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={
        "content": st.text() | st.none() | st.lists(PART, max_size=3) | JSON,
        "tool_calls": st.lists(CALL | JSON, max_size=2) | JSON,
        "tool_call_id": JSON,
        "name": st.text(max_size=3) | st.none(),
        "reasoning_content": JSON,
    },
)


@pytest.mark.parametrize(
    "template", [CHATML, SYSTEM_FIRST, NO_SYSTEM, DROPS_LATE_SYSTEM, CALLS, CALLS_AS_TEXT, MISTRAL]
)
@given(messages=st.lists(MESSAGE, max_size=5), continued=st.booleans())
def test_whatever_clients_send_is_rendered_or_refused(template, messages, continued):
    chat = Chat(messages=messages, continue_final_message=continued)
    try:
        text = ChatRenderer(ChatTemplate(template, {})).render(chat)
    except InvalidRequest:
        return
    assert isinstance(text, str)
    assert not set(text) & {"\ue000", "\ue001"} - set(json.dumps(messages, ensure_ascii=False))


# -- variables --------------------------------------------------------------------------------------------------------


def test_template_kwargs_reach_the_template(render):
    assert render("{{ enable_thinking }}", user(), template_kwargs={"enable_thinking": False}) == "False"


@pytest.mark.parametrize("key", ["chat_template", "messages", "tools", "add_generation_prompt", "bos_token"])
def test_template_kwargs_never_replace_what_the_request_or_the_model_says(render, key):
    with pytest.raises(InvalidRequest, match=key) as caught:
        render(CHATML, user(), template_kwargs={key: "x"})
    assert caught.value.param == f"chat_template_kwargs.{key}"


def test_special_tokens_and_helpers_are_there(render):
    text = render("{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y') | length }}", user())
    assert text == "<|endoftext|><|im_end|>4"


def test_markers_in_the_text_become_special_tokens(with_template):
    processor = with_template(CHATML)
    ids = processor.render(Chat(messages=[user()])).token_ids
    assert ids[0] == processor.tokenizer.token_id("<|im_start|>")


# -- continuing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["The answer", "The answer ", ""])
@pytest.mark.parametrize("template", [CHATML, NO_SYSTEM])
def test_the_final_message_is_left_open(render, template, content):
    text = render(template, user(), assistant(content), continue_final_message=True)
    assert text.endswith(f"assistant\n{content}")


@pytest.mark.parametrize("last", [user(), assistant("A", tool_calls=[call("{}")])])
def test_only_an_answer_can_be_continued(render, last):
    with pytest.raises(InvalidRequest, match="final assistant message") as caught:
        render(CHATML, user(), last, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_a_template_that_hides_the_final_message_is_explained(render):
    with pytest.raises(InvalidRequest, match="cannot be continued"):
        render("{{ messages[0].content }}", user(), assistant(), continue_final_message=True)


# -- the sandbox ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ ''.__class__.__subclasses__() }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{{ '{0.__class__}'.format(1) }}",
    ],
)
def test_a_hostile_template_gets_nowhere(render, template):
    try:
        text = render(template, user())
    except InvalidRequest:
        return
    assert "class" not in text


def test_a_template_may_build_lists(render):
    template = (
        "{% set ns = namespace(l=[]) %}{% for m in messages %}{{ '' if ns.l.append(m.role) }}{% endfor %}{{ ns.l[0] }}"
    )
    assert render(template, user()) == "user"


def test_loop_controls_and_the_generation_tag_are_known(render):
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    )
    assert render(template, user("A"), user("B")) == "A"


def test_a_template_that_is_not_valid_is_a_model_error_with_its_line():
    with pytest.raises(ModelError, match=r"not valid \(line 2\)"):
        ChatTemplate("a\n{% if %}", {})


def test_an_enormous_template_is_refused():
    with pytest.raises(ModelError, match="at most"):
        ChatTemplate("x" * (MAX_SOURCE + 1), {})


def test_a_template_is_compiled_once():
    assert compile_template(CHATML) is compile_template(CHATML)
