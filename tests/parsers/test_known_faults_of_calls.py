"""Faults of other servers in reading tool calls, none of which may happen here.

``read`` takes each completion in steps of every length, and with markers as tokens and spelled out.
"""

from __future__ import annotations

import json
import re

import pytest

from vllm_mlx_core.api import Tool

from .completions import Reply, called, read


def tool(name, **properties):
    return Tool(name, parameters={"type": "object", "properties": properties})


TEXT, INTEGER = {"type": "string"}, {"type": "integer"}
WEATHER = tool("get_weather", city=TEXT)
READ = tool("read", path=TEXT, filePath=TEXT, limit=INTEGER)
HARMONY_CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_weather", {"city": "Rome"})


def qwen_call(name, **values):
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def hermes_call(arguments, name="f"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


# -- calls that come out as text, or not at all ----------------------------------------------------------------------


@pytest.mark.parametrize("parser", ["qwen3_coder", "auto", "nemotron", "step3p5"])
def test_a_call_is_a_call_and_its_text_is_only_the_text_before_it(parser):
    text = f"Let me look.\n{qwen_call('get_weather', city='Paris')}"
    assert read(text, parser, tools=[WEATHER]) == called(PARIS, content="Let me look.")
    again = f"{text}\n{qwen_call('get_weather', city='Rome')}"
    assert read(again, parser, tools=[WEATHER]) == called(PARIS, ROME, content="Let me look.")


@pytest.mark.parametrize("opened", ["by the model", "in the prompt"])
def test_a_call_in_a_think_block_that_is_never_closed_is_made(opened):
    text = f"need the file\n{qwen_call('read', filePath='/tmp/probe.txt')}"
    prompt = "<think>\n" if opened == "in the prompt" else ""
    reply = read(text if prompt else f"<think>\n{text}", "qwen3_coder", "qwen3", tools=[READ], prompt=prompt)
    assert reply == called(("read", {"filePath": "/tmp/probe.txt"}), reasoning="need the file")


@pytest.mark.parametrize(
    "call",
    [
        qwen_call("unknown", filePath="/tmp/probe.txt"),
        qwen_call("read", filePath="/tmp/probe.txt").removesuffix("</parameter>\n</function>\n</tool_call>"),
        "<tool_call> is how I would do it",
    ],
)
def test_only_a_whole_call_of_a_declared_tool_is_taken_out_of_thinking(call):
    thought = f"need the file\n{call}".strip()
    assert read(f"<think>\n{thought}", "qwen3_coder", "qwen3", tools=[READ]) == Reply(reasoning=thought)


@pytest.mark.parametrize("after", ["Done.", qwen_call("get_weather", city="Paris"), ""])
def test_a_call_in_thinking_that_was_closed_is_a_draft(after):
    draft = qwen_call("get_weather", city="Rome")
    reply = read(f"<think>maybe\n{draft}\n</think>\n\n{after}", "qwen3_coder", "qwen3", tools=[WEATHER])
    assert reply.reasoning == f"maybe\n{draft}"
    assert reply.calls == ((PARIS,) if "Paris" in after else ())
    assert reply.content == ("Done." if after == "Done." else "")


# -- types from the schema -------------------------------------------------------------------------------------------

NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
EDIT = Tool(
    "edit",
    parameters={
        "type": "object",
        "properties": {
            "count": NULLABLE,
            "flag": {"type": ["boolean", "null"]},
            "place": {"$ref": "#/$defs/Place"},
            "note": TEXT,
            "mode": {"type": "string", "enum": ["edit", "view"]},
            "free": {},
            "one": {"oneOf": [{"type": "number"}, {"type": "array"}]},
            "whole": INTEGER,
            "maybe": {"type": "integer", "nullable": True},
            "all": {"allOf": [{"type": "object"}, {"required": ["a"]}]},
        },
        "$defs": {"Place": {"type": "object", "properties": {"city": TEXT}}},
    },
)
WRITTEN = {
    "count": "5", "flag": "false", "place": '{"city":"Paris"}', "note": "123", "mode": "edit",
}  # fmt: skip
MEANT = {"count": 5, "flag": False, "place": {"city": "Paris"}, "note": "123", "mode": "edit"}


def glm_call(name, **values):
    arguments = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values.items())
    return f"<tool_call>{name}\n{arguments}</tool_call>"


def invoke(name, **values):
    parameters = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values.items())
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{parameters}</invoke>\n</minimax:tool_call>'


def seed_call(name, **values):
    return qwen_call(name, **values).replace("tool_call>", "seed:tool_call>")


def step3_call(name, **values):
    parameters = "".join(
        f'<steptml:parameter name="{key}">{value}</steptml:parameter>' for key, value in values.items()
    )
    return (
        f"<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>{name}\n"
        f'<steptml:invoke name="{name}">{parameters}</steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>'
    )


TAGGED = {
    "qwen3_coder": qwen_call,
    "nemotron": qwen_call,
    "step3p5": qwen_call,
    "seed_oss": seed_call,
    "glm45": glm_call,
    "minimax_m2": invoke,
    "step3": step3_call,
}
TAGGED_FORMATS = pytest.mark.parametrize(("parser", "write"), TAGGED.items(), ids=TAGGED)


@TAGGED_FORMATS
def test_values_without_quotes_get_the_types_of_their_schema(parser, write):
    assert read(write("edit", **WRITTEN), parser, tools=[EDIT]) == called(("edit", MEANT))


@TAGGED_FORMATS
@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("count", "null", None), ("flag", "null", None), ("note", "null", "null"), ("note", '{"a": 1}', '{"a": 1}'),
        ("mode", "null", "null"), ("free", '{"a": [1]}', {"a": [1]}), ("free", "[1]", [1]), ("free", "5", "5"),
        ("free", "true", "true"), ("whole", "null", "null"),
        ("maybe", "null", None), ("maybe", "5", 5), ("one", "1.5", 1.5),
        ("one", "[1]", [1]), ("all", '{"a": 1}', {"a": 1}),
    ],
)  # fmt: skip
def test_null_is_null_only_where_it_may_be_and_without_a_type_only_objects_and_lists_are_decoded(
    parser, write, key, value, meant
):
    assert read(write("edit", **{key: value}), parser, tools=[EDIT]) == called(("edit", {key: meant}))


@TAGGED_FORMATS
def test_a_value_that_does_not_fit_its_type_is_kept_as_it_was_written(parser, write):
    strict = tool("strict", day=INTEGER, body={"type": "object"}, sure={"type": "boolean"})
    values = {"day": "2026-01-15", "body": "not json", "sure": "maybe"}
    assert read(write("strict", **values), parser, tools=[strict]) == called(("strict", values))


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parser", "text", "name"),
    [
        ("hermes", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>', "ping"),
        ("hermes", '<tool_call>\n{"name": "ping"}\n</tool_call>', "ping"),
        ("glm45", "<tool_call>get_time</tool_call>", "get_time"),
        ("glm45", "<tool_call>get_time\n</tool_call>", "get_time"),
        ("qwen3_coder", "<tool_call>\n<function=ping>\n</function>\n</tool_call>", "ping"),
        ("qwen3_coder", "<function=ping>\n</function>", "ping"),
        ("harmony", "<|channel|>commentary to=functions.ping <|constrain|>json<|message|><|call|>", "ping"),
        ("harmony", "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>", "ping"),
        ("mistral", "[TOOL_CALLS]ping[ARGS]{}", "ping"),
        ("minimax_m2", invoke("ping"), "ping"),
        ("seed_oss", seed_call("ping"), "ping"),
        ("step3", step3_call("ping"), "ping"),
        ("gemma4", "<|tool_call>call:ping{}<tool_call|>", "ping"),
        ("pythonic", "[ping()]", "ping"),
        ("llama3_json", '{"name": "ping", "parameters": {}}', "ping"),
    ],
)
def test_the_arguments_of_a_call_without_arguments_are_an_empty_object(parser, text, name):
    reply = read(text, parser, tools=[name])
    assert reply == called((name, {}))
    assert reply.arguments == ("{}",)


def test_a_raw_newline_in_a_string_is_read_and_other_slips_are_made_good():
    def arguments(written):
        return read(hermes_call(written, "write"), "hermes", tools=["write"])

    assert arguments('{"text": "line1\nline2"}') == called(("write", {"text": "line1\nline2"}))
    assert arguments('{"text": "a\tb\x01"}') == called(("write", {"text": "a\tb\x01"}))
    assert arguments(r'{"text": "it\'s"}') == called(("write", {"text": "it's"}))
    assert arguments('{"text": "a",}') == called(("write", {"text": "a"}))


@pytest.mark.parametrize("body", ['{"name": "write", "arguments": {"text": oops}}', "{nonsense", "[]", "hello"])
def test_a_call_in_broken_json_is_content_and_the_completion_ends_as_ever(body):
    text = f"<tool_call>\n{body}\n</tool_call>"
    reply = read(text, "hermes", tools=["write"])
    assert (reply.content, reply.calls, reply.finish) == (text, (), "stop")


@pytest.mark.parametrize(
    "arguments",
    [{"id": 42}, {"opts": {"a": {"b": 1}}}, {}, {"s": "}"}, {"s": '"}]</tool_call>'}, {"a": [[], [{}]]}, {"s": ""}],
)
def test_no_brace_is_lost_and_nothing_comes_twice(arguments):
    reply = read(hermes_call(json.dumps(arguments)), "hermes", tools=["f"])
    assert reply == called(("f", arguments))
    assert [json.loads(sent) for sent in reply.arguments] == [arguments]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", hermes_call(r'{"city": "北京", "e": "🎉", "q": "\u00e9"}')),
        ("hermes", hermes_call(r'{"city": "\u5317\u4eac", "e": "\ud83c\udf89", "q": "é"}')),
        ("qwen3_coder", qwen_call("f", city="北京", e="🎉", q="é")),
        ("glm45", glm_call("f", city="北京", e="🎉", q="é")),
        ("pythonic", "[f(city='北京', e='🎉', q='\\u00e9')]"),
        ("gemma4", '<|tool_call>call:f{city:<|"|>北京<|"|>,e:<|"|>🎉<|"|>,q:<|"|>é<|"|>}<tool_call|>'),
    ],
)
def test_unicode_means_itself_however_it_was_written_and_in_whatever_pieces_it_comes(parser, text):
    reply = read(text, parser, tools=[tool("f", city=TEXT, e=TEXT, q=TEXT)])
    assert reply == called(("f", {"city": "北京", "e": "🎉", "q": "é"}))
    if r"\u" not in text:
        assert "北京" in reply.arguments[0]
        assert "🎉" in reply.arguments[0]


@pytest.mark.parametrize(
    ("parser", "write", "value"),
    [
        ("qwen3_coder", qwen_call, "A block ends with </parameter> here."),
        ("qwen3_coder", qwen_call, "</function> and </tool_call> too"),
        ("glm45", glm_call, "x </arg_value> y"),
        ("minimax_m2", invoke, "A block ends with </parameter> here."),
        ("seed_oss", seed_call, "A block ends with </parameter> here."),
        ("step3", step3_call, "A block ends with </steptml:parameter> here."),
    ],
)
def test_a_closing_tag_inside_a_value_does_not_end_it(parser, write, value):
    text = write("get_weather", city=value)
    assert read(text, parser, tools=[WEATHER]) == called(("get_weather", {"city": value}))


# -- text around calls, and how many calls there are -------------------------------------------------------------------


@pytest.mark.parametrize("parser", ["hermes", "qwen3_coder", "glm45", "minimax_m2", "mistral", "kimi_k2", "auto"])
def test_text_before_between_and_after_calls_is_kept(parser):
    paris = {
        "hermes": hermes_call('{"city": "Paris"}', "get_weather"),
        "glm45": glm_call("get_weather", city="Paris"),
        "minimax_m2": invoke("get_weather", city="Paris"),
        "mistral": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
        "kimi_k2": kimi_section(kimi_call("functions.get_weather:0", '{"city": "Paris"}')),
    }.get(parser, qwen_call("get_weather", city="Paris"))
    rome = paris.replace("Paris", "Rome").replace(":0", ":1")
    text = f"First.\n\n{paris}\n\nSecond.\n{rome}\nThird.\n"
    reply = read(text, parser, tools=[WEATHER])
    assert reply == called(PARIS, ROME, content="First.\n\nSecond.\nThird.\n")


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", hermes_call('{"city": "Paris"}', "get_weather")),
        ("qwen3_coder", qwen_call("get_weather", city="Paris")),
        ("harmony", HARMONY_CALL),
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}'),
        ("llama3_json", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>'),
        ("auto", qwen_call("get_weather", city="Paris")),
    ],
)
def test_where_calls_are_forbidden_there_are_none_and_no_markup_is_left(parser, text):
    assert read(f"Let me look.{text}", parser, tools_enabled=False) == Reply("Let me look.")


def test_where_only_one_call_is_allowed_the_completion_ends_with_it():
    text = f"Let me look.\n{qwen_call('get_weather', city='Paris')}\n{qwen_call('get_weather', city='Rome')} More."
    reply = read(text, "qwen3_coder", tools=[WEATHER], parallel_tool_calls=False)
    assert reply == called(PARIS, content="Let me look.")


def test_what_the_limit_cuts_off_is_no_whole_call_and_ends_for_its_length():
    call = qwen_call("get_weather", city="Paris")
    for end in range(1, call.index("</function>")):
        reply = read(call[:end], "qwen3_coder", tools=[WEATHER], finish="length")
        assert (reply.calls, reply.finish) == ((), "length")
        assert reply.content in ("", call[:end])
        for sent in reply.arguments:
            with pytest.raises(json.JSONDecodeError):
                json.loads(sent)


# -- what only looks like a call -------------------------------------------------------------------------------------

PACKAGE = '```json\n{"name":"my-app","version":"1.0"}\n```'


@pytest.mark.parametrize("parser", ["llama3_json", "json", "xlam", "auto", "hermes", "pythonic", "mistral", "granite"])
@pytest.mark.parametrize(
    "text",
    [
        PACKAGE,
        f"Your file:\n\n{PACKAGE}\n\nThat is all.",
        '{"name": "Alice"}',
        '{"name": "Alice", "arguments": {"x": 1}}',
        '{"name": "get_weather"}',
        '[{"name": "my-app", "arguments": {}}]',
    ],
)
def test_json_that_names_no_declared_tool_or_has_no_arguments_is_content(parser, text):
    assert read(text, parser, tools=[WEATHER]) == Reply(text)


# -- families --------------------------------------------------------------------------------------------------------

HARMONY = [
    (f"<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant{HARMONY_CALL}", "Need weather.", ""),
    (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>',
        "",
        "",
    ),
    (f"<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant{HARMONY_CALL}", "", "I look it up."),
    (HARMONY_CALL.replace("commentary", "analysis"), "", ""),
    (HARMONY_CALL.removesuffix("<|call|>"), "", ""),
    (HARMONY_CALL.replace("<|constrain|>json", "code"), "", ""),
    (HARMONY_CALL.replace("<|constrain|>", ""), "", ""),
    (HARMONY_CALL.replace(" <|constrain|>", "<|constrain|>"), "", ""),
    (HARMONY_CALL.replace(" <|constrain|>json", ""), "", ""),
]


@pytest.mark.parametrize(("text", "reasoning", "content"), HARMONY)
def test_harmony_calls_are_read_from_every_header_and_no_header_is_shown(text, reasoning, content):
    reply = read(text, "harmony", "harmony", tools=[WEATHER])
    assert reply == called(PARIS, reasoning=reasoning, content=content)


def test_an_analysis_and_an_answer_do_not_run_into_each_other():
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"
    assert read(text, "harmony", "harmony", tools=[WEATHER]) == Reply("Hello.", "Hm.")


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>final code<|message|>",
        "<|channel|>final <|constrain|>json<|message|>",
        "<|channel|>commentary to=assistant<|message|>",
        "<|channel|><|message|>",
        "<|channel|>unheard-of<|message|>",
    ],
)
def test_an_odd_harmony_header_is_made_sense_of(header):
    reply = read(f"{header}Hello.<|return|>", "harmony", "harmony", tools=[WEATHER])
    assert reply.finish == "stop"
    assert reply.content + reply.reasoning == "Hello."


def test_mistral_calls_by_name_are_told_apart_and_their_ids_kept():
    text = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]add[ARGS]{"a": 1, "b": [2, 3]}'
    reply = read(text, "mistral", tools=[WEATHER, "add"])
    assert reply == called(PARIS, ("add", {"a": 1, "b": [2, 3]}))
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in reply.ids)
    reply = read("[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{}", "mistral", tools=["f"])
    assert reply == called(("f", {}))
    assert reply.ids == ("abc123XYZ",)
    (replaced,) = read("[TOOL_CALLS]f[CALL_ID]call_3f2a-long[ARGS]{}", "mistral", tools=["f"]).ids
    assert re.fullmatch("[A-Za-z0-9]{9}", replaced)


def test_mistral_lists_give_all_their_calls_with_numbers_as_numbers():
    text = (
        '[TOOL_CALLS] [{"name": "calculator", "arguments": {"expression": "2+3"}}, '
        '{"name": "add", "arguments": {"a": 3, "b": 4}}]'
    )
    reply = read(text, "mistral", tools=["calculator", "add"])
    assert reply == called(("calculator", {"expression": "2+3"}), ("add", {"a": 3, "b": 4}))
    assert reply.arguments[1].replace(" ", "") == '{"a":3,"b":4}'
    assert all(re.fullmatch("[A-Za-z0-9]{9}", each) for each in reply.ids)
    assert len(set(reply.ids)) == 2


def test_a_bare_function_and_parameters_that_are_not_closed_are_a_call():
    text = "<function=read>\n<parameter=path>\na.txt\n<parameter=limit>\n5\n</parameter>\n</function>"
    arguments = {"path": "a.txt", "limit": 5}
    assert read(text, "qwen3_coder", tools=[READ]) == called(("read", arguments))
    assert read(text, "step3p5", tools=[READ]) == called(("read", arguments))
    assert read(text, "qwen3_coder", tools=[WEATHER]) == Reply(text)


NESTED = '{"name": "search", "parameters": {"q": "x", "filters": {"lang": "en"}}}'
SEARCH = ("search", {"q": "x", "filters": {"lang": "en"}})


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"<|python_tag|>{NESTED}<|eom_id|>", ""),
        (NESTED, ""),
        (f"{NESTED}<|eot_id|>", ""),
        (f"{NESTED}\nI looked it up.", "I looked it up."),
        (f"<|python_tag|>{NESTED} I looked it up.", "I looked it up."),
    ],
)
def test_llama_calls_without_markers_keep_their_nested_parameters(text, content):
    assert read(text, "llama3_json", tools=["search"]) == called(SEARCH, content=content)


def test_glm_calls_back_to_back_without_arguments_or_with_a_stray_tag_are_calls():
    first = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
    assert read(f"{first}{first.replace('Paris', 'Rome')}", "glm45", tools=[WEATHER]) == called(PARIS, ROME)
    text = f"<tool_call>get_time</tool_call>{first}</arg_value>"
    assert read(text, "glm45", tools=[WEATHER, "get_time"]) == called(("get_time", {}), PARIS)
    text = f"{first.removesuffix('</tool_call>')}</arg_value></tool_call><tool_call>get_time</tool_call>"
    assert read(text, "glm45", tools=[WEATHER, "get_time"]) == called(PARIS, ("get_time", {}))


V3 = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city":"Tokyo"}\n```<｜tool▁call▁end｜>'
V31 = '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city":"Tokyo"}<｜tool▁call▁end｜>'
TOKYO = ("get_weather", {"city": "Tokyo"})


@pytest.mark.parametrize(("parser", "call"), [("deepseek_v3", V3), ("deepseek_v31", V31)])
def test_deepseek_calls_lose_nothing_and_leak_no_marker_in_one_piece_or_many(parser, call):
    def text(*calls):
        return f"<｜tool▁calls▁begin｜>{''.join(calls)}<｜tool▁calls▁end｜>"

    reply = read(text(call), parser, tools=[WEATHER])
    assert reply == called(TOKYO)
    assert reply.arguments == ('{"city":"Tokyo"}',)
    osaka = ("get_weather", {"city": "Osaka"})
    for between in ("", "\n"):
        both = text(call, between, call.replace("Tokyo", "Osaka"))
        assert read(f"Sure. {both}", parser, tools=[WEATHER]) == called(TOKYO, osaka, content="Sure.")


def kimi_call(call_id, arguments):
    return f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def kimi_section(*calls, name="tool_calls"):
    return f"<|{name}_section_begin|>{''.join(calls)}<|{name}_section_end|>"


KIMI = (kimi_call("functions.get_weather:0", '{"city": "Tokyo"}'), kimi_call("functions.get_time:1", "{}"))


@pytest.mark.parametrize(
    "section",
    [
        kimi_section(*KIMI),
        kimi_section(*KIMI, name="tool_call"),
        kimi_section(*(call.replace(":", ":\n", 1) for call in KIMI)),
    ],
)
def test_kimi_ids_are_those_of_the_model_and_the_section_does_not_leak(section):
    reply = read(f"I'll check.{section}", "kimi_k2", tools=[WEATHER, "get_time"])
    assert reply == called(TOKYO, ("get_time", {}), content="I'll check.")
    assert reply.ids == ("functions.get_weather:0", "functions.get_time:1")


def test_kimi_arguments_of_many_kilobytes_come_through():
    long = "x" * 9_000
    text = kimi_section(kimi_call("functions.write:0", json.dumps({"text": long})))
    assert read(text, "kimi_k2", tools=["write"]) == called(("write", {"text": long}))


def test_every_invoke_of_a_minimax_wrapper_is_a_call_and_white_space_is_data():
    text = (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">\n  keep\n</parameter>\n</invoke>\n'
        '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>'
    )
    reply = read(text, "minimax_m2", tools=[WEATHER])
    assert reply == called(("get_weather", {"city": "\n  keep\n"}), PARIS)


@pytest.mark.parametrize("parser", ["granite", "hermes", "ernie45", "longcat", "nemotron", "xlam", "json"])
def test_arguments_that_are_a_string_of_json_are_decoded_once(parser):
    body = r'{"name": "get_db_config", "arguments": "{\n  \"param\": \"max_connections\"\n}"}'
    tags = {"longcat": "longcat_tool_call", "nemotron": "TOOLCALL"}.get(parser, "tool_call")
    text = f"<{tags}>{f'[{body}]' if parser == 'nemotron' else body}</{tags}>"
    if parser == "json":
        text = body
    reply = read(text, parser, tools=["get_db_config"])
    assert reply == called(("get_db_config", {"param": "max_connections"}))


def test_a_granite_list_gives_all_its_calls():
    text = '<|tool_call|>[{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}]'
    assert read(text, "granite", tools=["a", "b"]) == called(("a", {"x": 1}), ("b", {}))


@pytest.mark.parametrize("parser", ["poolside_v1", "glm47", "auto"])
def test_inline_arguments_between_tags_are_read(parser):
    text = "<tool_call>lookup<arg_key>repo</arg_key><arg_value>demo-app</arg_value></tool_call>"
    assert read(text, parser, tools=[tool("lookup", repo=TEXT)]) == called(("lookup", {"repo": "demo-app"}))


def test_a_poolside_model_is_stopped_where_its_turn_ends():
    text = "<tool_call>lookup<arg_key>repo</arg_key><arg_value>demo-app</arg_value></tool_call></assistant>"
    assert read(text, "poolside_v1", tools=[tool("lookup", repo=TEXT)]) == called(("lookup", {"repo": "demo-app"}))
    assert read("Hello.</assistant>", "poolside_v1", tools=["lookup"]) == Reply("Hello.")


def test_both_generations_of_nemotron_are_read():
    text = (
        '<TOOLCALL>[{"name": "search", "arguments": {"filters": {"a": [1]}}}, '
        '{"name": "open", "arguments": "{\\"id\\": 3}"}]</TOOLCALL>'
    )
    reply = read(text, "nemotron", tools=["search", "open"])
    assert reply == called(("search", {"filters": {"a": [1]}}), ("open", {"id": 3}))
    assert read(qwen_call("get_weather", city="Paris"), "nemotron", tools=[WEATHER]) == called(PARIS)


LIST = '[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 42}}]'


@pytest.mark.parametrize(
    ("parser", "reasoning_parser", "text"),
    [
        ("xlam", None, LIST),
        ("xlam", None, f"```json\n{LIST}\n```"),
        ("xlam", None, f"```\n{LIST}\n```"),
        ("xlam", "qwen3", f"<think>Hm.</think>{LIST}"),
        ("xlam", "qwen3", f"<think>Hm.</think>\n\n```json\n{LIST}\n```"),
        ("xlam", None, f"[TOOL_CALLS]{LIST}"),
        ("xlam", None, f"<tool_call>{LIST}</tool_call>"),
        ("json", None, LIST),
        ("jamba", None, f"<tool_calls>{LIST}</tool_calls>"),
        ("hunyuan", None, f"<tool_calls>{LIST}</tool_calls>"),
        ("phi4_mini", None, f"functools{LIST}"),
    ],
)
def test_of_a_list_of_calls_each_comes_once_even_after_an_empty_one(parser, reasoning_parser, text):
    reply = read(text, parser, reasoning_parser, tools=["a", "b"])
    assert reply == called(("a", {}), ("b", {"x": 42}), reasoning="Hm." if reasoning_parser else "")
    assert reply.arguments[0] == "{}"
    assert json.loads(reply.arguments[1]) == {"x": 42}


def test_functionary_reads_parallel_calls_after_text():
    calls = (("get_price", {"car": "Song"}), ("get_price", {"car": "Tang"}))
    for text in (
        'I will compare.<function=get_price>{"car": "Song"}</function>'
        '<function=get_price>{"car": "Tang"}</function><|eom_id|>',
        '>>>all\nI will compare.>>>get_price\n{"car": "Song"}>>>get_price\n{"car": "Tang"}<|eot_id|>',
        'all\nI will compare.>>>get_price\n{"car": "Song"}>>>get_price\n{"car": "Tang"}<|eot_id|>',
    ):
        assert read(text, "functionary", tools=["get_price"]) == called(*calls, content="I will compare.")
    for text in ("I compare nothing.", ">>>all\nI compare nothing.<|eot_id|>"):
        assert read(text, "functionary", tools=["get_price"]) == Reply("I compare nothing.")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1} junk }</tool_call>'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1} junk }]'),
        ("llama3_json", '<|python_tag|>{"name": "f", "parameters": {"a": 1} junk }'),
        ("jamba", '<tool_calls>[{"name": "f", "arguments": {"a": 1} junk }]</tool_calls>'),
    ],
)
def test_a_call_that_breaks_after_its_arguments_has_no_complete_ones(name, text):
    """A client that does not look at the finish reason would run it."""
    reply = read(text, name, tools=["f"])
    assert (reply.calls, reply.content, reply.finish) == ((), text, "stop")
    for arguments in reply.arguments:
        with pytest.raises(ValueError, match="delimiter"):
            json.loads(arguments)


@pytest.mark.parametrize("arguments", ["[1]", "1", '"hello"', "true"])
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": %s}</tool_call>'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": %s}]'),
        ("mistral", "[TOOL_CALLS]f[ARGS]%s"),
        ("llama3_json", '<|python_tag|>{"name": "f", "parameters": %s}'),
        ("phi4_mini", 'functools[{"name": "f", "arguments": %s}]'),
        ("kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>%s<|tool_call_end|>"),
        ("json", '{"name": "f", "arguments": %s}'),
    ],
)
def test_arguments_that_are_no_object_are_not_sent(name, form, arguments):
    text = form % arguments
    reply = read(text, name, tools=["f"])
    assert (reply.calls, reply.content, "".join(reply.arguments)) == ((), text, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "a b <c>", "arguments": {}}</tool_call>'),
        ("kimi_k2", '<|tool_call_begin|>functions.x:3 <b> "y" {"a":1}<|tool_call_end|>'),
        ("deepseek_v31", '<｜tool▁call▁begin｜>see "this" <b><｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'),
        ("mistral", '[TOOL_CALLS][{"name": "{}", "arguments": {}}]'),
    ],
)
def test_what_cannot_be_a_name_makes_no_call(name, text):
    assert read(text, name, tools=["f"]) == Reply(text)


def test_a_declared_name_counts_whatever_it_looks_like():
    text = '<tool_call>{"name": "my tool (old)", "arguments": {}}</tool_call>'
    assert read(text, "hermes", tools=["my tool (old)"]) == called(("my tool (old)", {}))


def test_a_broken_call_takes_no_other_along_in_whatever_format():
    text = '<tool_call>{"name": "f", "argu<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    for name in ("hermes", "auto"):
        assert read(text, name, tools=["f"]).calls == (("f", {"a": 1}),)


@pytest.mark.parametrize(("name", "tag"), [("hunyuan", "answer"), ("ernie45", "response")])
def test_tags_around_an_answer_are_dropped_and_mentions_of_them_kept(name, tag):
    assert read(f"<{tag}>\nUse the </{tag} > tag.\n</{tag}>", name, tools=["f"]) == Reply(f"Use the </{tag} > tag.")
    for mention in (f"The <{tag}> tag", f"The </{tag}> tag ends it.", f"It is <{tag}>this</{tag}>."):
        assert read(mention, name, tools=["f"]) == Reply(mention)


@pytest.mark.parametrize(("value", "text"), [("print(1)\n", "print(1)\n"), ("\nprint(1)\n", "print(1)"), ("a", "a")])
def test_an_inline_value_keeps_the_newline_at_its_end(value, text):
    call = f"<function=write>\n<parameter=text>{value}</parameter>\n</function>"
    tool = Tool("write", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    reply = read(f"<seed:tool_call>\n{call}\n</seed:tool_call>", "seed_oss", tools=[tool])
    assert reply == called(("write", {"text": text}))


def test_a_seed_model_may_quote_its_tag_while_it_thinks():
    text = (
        "<seed:think>use <seed:tool_call> maybe</seed:think><seed:tool_call>\n<function=get_weather>\n"
        "<parameter=location>Barcelona, Spain</parameter>\n</function>\n</seed:tool_call>"
    )
    reply = read(text, "seed_oss", "seed_oss", tools=[tool("get_weather", location=TEXT)])
    assert reply == called(("get_weather", {"location": "Barcelona, Spain"}), reasoning="use <seed:tool_call> maybe")


def test_cohere_actions_are_calls_and_citation_tags_are_not_shown():
    text = (
        "<|START_THINKING|>do both<|END_THINKING|><|START_ACTION|>\n"
        '[{"tool_call_id": "0", "tool_name": "foo", "parameters": {"q": "x"}}, '
        '{"tool_call_id": "1", "tool_name": "bar", "parameters": {"x": 42}}]\n<|END_ACTION|>'
    )
    reply = read(text, "cohere", "cohere", tools=["foo", "bar"])
    assert reply == called(("foo", {"q": "x"}), ("bar", {"x": 42}), reasoning="do both")
    assert len(set(reply.ids)) == 2
    answer = "<|START_RESPONSE|>foo <co>bar</co: 0:[1,2]><|END_RESPONSE|>"
    for parser, reasoning_parser in (("cohere", "cohere"), ("cohere", None), (None, "cohere")):
        assert read(answer, parser, reasoning_parser, tools=["foo"]) == Reply("foo bar")


def test_a_nested_minimax_m3_array_is_an_array_of_what_its_schema_says():
    mark = "]<]minimax[>["
    items = {"type": "array", "items": {"type": "object", "properties": {"id": INTEGER, "tags": {"type": "array"}}}}
    item = "{m}<item>{m}<id>018956{m}</id>{m}<tags>{m}<item>a{m}</item>{m}<item>b{m}</item>{m}</tags>{m}</item>"
    text = (
        f'{mark}<tool_call>\n{mark}<invoke name="order">{mark}<items>{item.format(m=mark)}{mark}</items>'
        f"{mark}</invoke>\n{mark}</tool_call>"
    )
    reply = read(text, "minimax_m3", tools=[tool("order", items=items)])
    assert reply == called(("order", {"items": [{"id": 18956, "tags": ["a", "b"]}]}))


def test_leading_spaces_of_a_step3_value_are_data():
    text = step3_call("get_weather", city="  Paris")
    assert read(text, "step3", tools=[WEATHER]) == called(("get_weather", {"city": "  Paris"}))


@pytest.mark.parametrize(("reasoning_parser", "tools"), [("kimi_k3", []), ("kimi_k3", ["f"]), (None, ["f"])])
def test_the_end_of_a_kimi_k3_message_is_not_shown(reasoning_parser, tools):
    text = "Hello<|close|>message<|sep|>"
    assert read(text, "kimi_k3", reasoning_parser, tools=tools) == Reply("Hello")
