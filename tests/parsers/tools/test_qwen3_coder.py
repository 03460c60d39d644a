from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.step3p5 import Step3p5ToolParser

READ = Tool(
    "read",
    parameters={"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}},
)
WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})


def function(name: str, **values: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<function={name}>\n{parameters}</function>"


def block(*functions: str) -> str:
    return "<tool_call>\n{}\n</tool_call>".format("\n".join(functions))


def parser(*tools: Tool) -> Qwen3CoderToolParser:
    return Qwen3CoderToolParser(ParserContext(tools=tools or (READ, WEATHER)))


def typed(schema: object) -> Tool:
    return Tool("f", parameters={"type": "object", "properties": {"a": schema}})


PARIS = block(function("get_weather", city="Paris"))
PARIS_CALL = ("get_weather", {"city": "Paris"})


class TestQwen3CoderConforms(ToolParserSuite):
    parser = Qwen3CoderToolParser
    tools = (READ, WEATHER)
    extra_markers = ("<function=", "</function>", "<parameter=", "</parameter>")
    samples = (
        ToolSample(Qwen3CoderToolParser.sample, calls=[PARIS_CALL]),
        ToolSample(f"Let me look.\n\n{PARIS}\n{PARIS}", "Let me look.", [PARIS_CALL, PARIS_CALL]),
        ToolSample(f"One\n{PARIS} two\n\n{PARIS}\n three\n", "One\ntwo\n\nthree\n", [PARIS_CALL, PARIS_CALL]),
        ToolSample(
            block(function("read", path="a.txt", limit="5"), function("ping")),
            calls=[("read", {"path": "a.txt", "limit": 5}), ("ping", {})],
        ),
        ToolSample(block(function("read", path="\n  a\n\n")), calls=[("read", {"path": "\n  a\n\n"})]),
        ToolSample(block(function("read", path="")), calls=[("read", {"path": ""})]),
        ToolSample(
            block(function("read", path='"é" \\ {"a": [</p>]} 北京')),
            calls=[("read", {"path": '"é" \\ {"a": [</p>]} 北京'})],
        ),
        ToolSample(
            block(function("read", path="A block ends with </parameter> here.")),
            calls=[("read", {"path": "A block ends with </parameter> here."})],
        ),
        ToolSample(
            block(function("read", path="<parameter=x> <function=f> <tool_call> </parameter> x")),
            calls=[("read", {"path": "<parameter=x> <function=f> <tool_call> </parameter> x"})],
        ),
        ToolSample(
            block("<function=read>\n<parameter=path>\na.txt\n<parameter=limit>\n5\n</parameter>\n</function>"),
            calls=[("read", {"path": "a.txt", "limit": 5})],
        ),
        ToolSample(
            block("<function=read>\n<parameter=limit>\n5\n<parameter=path>\na.txt\n</function>"),
            calls=[("read", {"limit": 5, "path": "a.txt"})],
        ),
        ToolSample(
            "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n</tool_call>",
            calls=[("read", {"path": "a.txt"})],
        ),
        ToolSample(
            "<tool_call><function=read><parameter=path>a.txt</parameter></function></tool_call>",
            calls=[("read", {"path": "a.txt"})],
        ),
        ToolSample(PARIS.removesuffix("\n</tool_call>"), calls=[PARIS_CALL]),
        ToolSample(block('{"name": "read", "arguments": {"limit": 5}}'), calls=[("read", {"limit": 5})]),
        ToolSample(block(function("other", a="5", b='{"x": [1]}')), calls=[("other", {"a": "5", "b": {"x": [1]}})]),
        ToolSample(f"Say {block('hello')} ok", f"Say {block('hello')} ok", literal=True),
        ToolSample("Use `<tool_call>` or <function=NAME>.", "Use `<tool_call>` or <function=NAME>.", literal=True),
        ToolSample(f"```\n{PARIS}\n```", f"```\n{PARIS}\n```", literal=True),
    )


class TestQwen3CoderWithoutWrapperConforms(ToolParserSuite):
    parser = Qwen3CoderToolParser
    tools = (READ, WEATHER)
    bare = True
    extra_markers = ("<function=", "</function>", "<parameter=", "</parameter>")
    samples = (
        ToolSample(
            "<function=read>\n<parameter=path>\na.txt\n<parameter=limit>\n5\n</parameter>\n</function>",
            calls=[("read", {"path": "a.txt", "limit": 5})],
        ),
        ToolSample(f"Hi\n{function('get_weather', city='Paris')}\n</tool_call> bye", "Hi\nbye", [PARIS_CALL]),
        ToolSample(
            f"{function('read', limit='5')}\n{function('get_weather', city='Paris')}\n\nDone",
            "Done",
            [("read", {"limit": 5}), PARIS_CALL],
        ),
        ToolSample(function("unknown", a="b"), function("unknown", a="b"), literal=True),
    )


def test_a_streaming_call_is_a_call_as_in_the_whole_text(run, width):
    folded = fold(run(parser(), f"Let me look.\n{PARIS}\n{PARIS}", width))
    assert folded.content == "Let me look."
    assert folded.calls == [PARIS_CALL, PARIS_CALL]


@pytest.mark.parametrize("parser_class", [Qwen3CoderToolParser, Step3p5ToolParser])
def test_a_declared_function_needs_no_wrapper_and_no_closing_parameter_tags(run, width, parser_class):
    text = "<function=read>\n<parameter=path>\na.txt\n<parameter=limit>\n5\n</parameter>\n</function>"
    context = ParserContext(tools=(READ,))
    assert fold(run(parser_class(context), text, width)).calls == [("read", {"path": "a.txt", "limit": 5})]
    folded = fold(run(parser_class(ParserContext()), text, width))
    assert folded.content == text
    assert folded.calls == []


@pytest.mark.parametrize("text", [block(function("ping")), "<tool_call><function=ping></function></tool_call>"])
def test_a_call_without_arguments_has_the_arguments_of_an_empty_object(run, width, text):
    events = run(parser(), text, width)
    assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == "{}"


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"type": ["boolean", "null"]}, "false", False),
        ({"type": ["boolean", "null"]}, "null", None),
        ({"type": "object"}, '{"city":"Paris"}', {"city": "Paris"}),
        ({"type": "object"}, "{'city': 'Paris', 'n': None}", {"city": "Paris", "n": None}),
        ({"type": "string"}, "123", "123"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string", "enum": ["edit", "view"]}, "edit", "edit"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "nullify", "nullify"),
        ({"type": "integer"}, "2026-01-15", "2026-01-15"),
        ({"type": "object"}, "not json", "not json"),
        ({"type": "boolean"}, "maybe", "maybe"),
        ({"type": "number"}, "1.50", 1.5),
        ({}, "5", "5"),
        ({}, "[1, 2]", [1, 2]),
        ({}, " {}", {}),
        ({}, " [not json", " [not json"),
        ({}, " text ", " text "),
    ],
)
def test_a_value_has_the_type_that_the_schema_says_and_else_stays_a_string(run, width, schema, text, value):
    assert fold(run(parser(typed(schema)), block(function("f", a=text)), width)).calls == [("f", {"a": value})]


def test_a_reference_in_the_schema_is_followed(run, width):
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = Tool("f", parameters={"$defs": {"Place": place}, "properties": {"a": {"$ref": "#/$defs/Place"}}})
    assert fold(run(parser(tool), block(function("f", a='{"city":"Paris"}')), width)).calls == [
        ("f", {"a": {"city": "Paris"}})
    ]


@pytest.mark.parametrize("tag", ["</parameter>", "</function>", "</tool_call>", "<parameter=x>", "<parameter=path>"])
def test_a_tag_inside_a_value_is_data_unless_the_next_tag_follows_it(run, width, tag):
    for value in (f"A block ends with {tag} here.", f"{tag} x", f"{tag}\n{tag}."):
        assert fold(run(parser(), block(function("read", path=value)), width)).calls == [("read", {"path": value})]


def test_an_opening_tag_ends_no_value_of_a_tool_that_is_not_declared(run, width):
    text = block(function("other", a="x <parameter=b> y"))
    assert fold(run(parser(), text, width)).calls == [("other", {"a": "x <parameter=b> y"})]


def test_a_parameter_that_comes_twice_counts_once(run, width):
    text = block("<function=read>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n</function>")
    events = run(parser(), text, width)
    assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == '{"path":"a"}'


@pytest.mark.parametrize(
    "body", ["", "<function=", "<function=>\n</function>", "<function=f>\ntext\n</function>", "{}"]
)
def test_a_block_that_is_no_call_is_text_and_nothing_is_lost(run, width, body):
    text = f"before {block(body)} after"
    folded = fold(run(parser(), text, width))
    assert folded.content == text
    assert folded.calls == []


def test_a_broken_function_does_not_spoil_the_one_before(run, width):
    folded = fold(run(parser(), block(function("ping"), "<function=f>oops"), width))
    assert folded.calls == [("ping", {})]
    assert folded.content == "\n<function=f>oops\n</tool_call>".lstrip()


def test_text_and_nullable_text_stream_while_they_are_generated():
    tool = Tool("f", parameters={"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}}})
    stream = parser(tool)
    start, *events = stream.feed(Chunk("<tool_call>\n<function=f>\n<parameter=a>\nwo"))
    assert isinstance(start, ToolCallStart)
    assert fold([start, *events]).unfinished == [("f", '{"a":"wo')]
    assert list(stream.feed(Chunk("rd"))) == [ToolCallArguments(0, "rd")]
    assert list(stream.feed(Chunk("\n"))) == []
    assert list(stream.feed(Chunk("s"))) == [ToolCallArguments(0, "\\ns")]
    events = list(stream.feed(Chunk("\n</parameter>\n<parameter=b>\nnu")))
    assert events[-1] == ToolCallArguments(0, ',"b":')
    assert fold([start, *stream.feed(Chunk("t"))]).unfinished == [("f", '"nut')]
    assert list(stream.feed(Chunk("s"))) == [ToolCallArguments(0, "s")]
    assert list(stream.feed(Chunk("\n</parameter>\n</function>")))[-1] == ToolCallEnd(0)
    assert list(stream.feed(Chunk("\n</tool_call>"))) == list(stream.finish()) == []


def test_a_value_that_may_be_something_else_holds_up_only_itself():
    stream = parser(READ)
    events = list(stream.feed(Chunk("<tool_call><function=read><parameter=limit>5</parameter><parameter=path>a")))
    assert fold(events).unfinished == [("read", '{"limit":5,"path":"a')]


def test_a_call_cut_off_never_ends_and_leaves_no_markup(run, width):
    for length in range(len(PARIS) - len("</function>\n</tool_call>")):
        folded = fold(run(parser(), "Hi\n" + PARIS[:length], width))
        assert folded.calls == []
        assert "<tool_call>" not in folded.content


tags = st.sampled_from(
    ["</parameter>.", "</function>.", "<tool_call>.", "<", "\n", '"', "\\", " ", "é", "</", "👩‍👩‍👧"]
)
values = st.lists(tags | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=8).map("".join)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["path", "text", "to"]), values.map(lambda value: value + "."), max_size=3),
    st.integers(1, 9),
)
def test_text_written_by_the_template_is_read_back_to_the_last_character(arguments, width):
    schema = {"properties": {key: {"type": "string"} for key in ("path", "text", "to")}}
    stream = parser(Tool("f", parameters=schema))
    text = block(function("f", **arguments))
    events = [event for i in range(0, len(text), width) for event in stream.feed(Chunk(text[i : i + width]))]
    events += stream.finish()
    assert fold(events).calls == [("f", arguments)]
