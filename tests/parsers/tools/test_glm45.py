from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.glm45 import GLMToolParser

TOOL = Tool("search", parameters={"properties": {"q": {"type": "string"}, "n": {"type": "integer"}}})


def lines(name: str, **values: str) -> str:
    """Write a call as the template of GLM-4.6 does."""
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in values.items())
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def inline(name: str, **values: str) -> str:
    """Write a call as the template of GLM-4.7 does."""
    pairs = "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in values.items())
    return f"<tool_call>{name}{pairs}</tool_call>"


def parser(*tools: Tool) -> GLMToolParser:
    return GLMToolParser(ParserContext(tools=tools or (TOOL,)))


CALL = ("search", {"q": "cats", "n": 5})
STRAY = "</arg_value>"


class TestGLMConforms(ToolParserSuite):
    parser = GLMToolParser
    tools = (TOOL,)
    samples = (
        ToolSample(GLMToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n\n{lines('search', q='cats', n='5')}\n{lines('ping')}", "Hi", [CALL, ("ping", {})]),
        ToolSample(f"Hi{inline('search', q='cats', n='5')}{inline('ping')} bye", "Hi bye", [CALL, ("ping", {})]),
        ToolSample(inline("search", q="x </arg_value> y"), calls=[("search", {"q": "x </arg_value> y"})]),
        ToolSample(
            lines("search", q="<arg_key> <tool_call> </arg_value>.", n="5"),
            calls=[("search", {"q": "<arg_key> <tool_call> </arg_value>.", "n": 5})],
        ),
        ToolSample(inline("search", q=f"cats{STRAY}"), calls=[("search", {"q": "cats"})]),
        ToolSample(
            f"{inline('search', q='cats')}{STRAY}\n{inline('ping')}{STRAY}",
            calls=[("search", {"q": "cats"}), ("ping", {})],
        ),
        ToolSample(f"<tool_call>ping{STRAY}</tool_call>", calls=[("ping", {})]),
        ToolSample(
            "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>cats</tool_call>", calls=[("search", {"q": "cats"})]
        ),
        ToolSample(inline("search", q='\n é "a" \\ \n'), calls=[("search", {"q": '\n é "a" \\ \n'})]),
        ToolSample(
            inline("f", a='{"b": [1, "x"]}', c="7", d=""), calls=[("f", {"a": {"b": [1, "x"]}, "c": "7", "d": ""})]
        ),
        ToolSample(
            '<tool_call>\n{"name": "search", "arguments": {"n": 5}}\n</tool_call>', calls=[("search", {"n": 5})]
        ),
        ToolSample("The <tool_call> tag is here", "The <tool_call> tag is here", literal=True),
        ToolSample("<tool_call></tool_call>", "<tool_call></tool_call>", literal=True),
        ToolSample("`<tool_call>`", "`<tool_call>`", literal=True),
    )


def test_parallel_calls_and_calls_without_arguments_and_stray_tags_give_calls_only(run, width):
    text = f"{inline('get_time')}{inline('search', q='a')}{STRAY}"
    folded = fold(run(parser(), text, width))
    assert folded.calls == [("get_time", {}), ("search", {"q": "a"})]
    assert folded.content == ""


def test_a_name_alone_is_a_call_with_the_arguments_of_an_empty_object(run, width):
    events = run(parser(), "<tool_call>get_time</tool_call>", width)
    assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == "{}"
    assert fold(events).calls == [("get_time", {})]


@pytest.mark.parametrize("write", [lines, inline])
def test_a_tag_inside_a_value_is_kept(run, width, write):
    for value in ("x </arg_value> y", "</tool_call>.", "<arg_key>a</arg_key>"):
        assert fold(run(parser(), write("search", q=value), width)).calls == [("search", {"q": value})]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "boolean"}, "true", True),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"type": "string"}, "[1, 2]", "[1, 2]"),
        ({"type": "integer"}, "2026-01-15", "2026-01-15"),
    ],
)
def test_types_come_from_the_schema(run, width, schema, text, value):
    tool = Tool("f", parameters={"properties": {"a": schema}})
    assert fold(run(parser(tool), inline("f", a=text), width)).calls == [("f", {"a": value})]


def test_text_streams_while_it_is_generated():
    stream = parser()
    stream.feed(Chunk("<tool_call>search<arg_key>q</arg_key><arg_value>a"))
    assert list(stream.feed(Chunk("b\n"))) == [ToolCallArguments(0, "b\\n")]
