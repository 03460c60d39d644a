from __future__ import annotations

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.nemotron import NemotronToolParser

TOOLS = (
    Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),
    Tool("read", parameters={"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}),
)
PARIS = '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>'
READ = (
    "<tool_call>\n<function=read>\n<parameter=path>\na.txt\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
    "</function>\n</tool_call>"
)
WEATHER = ("get_weather", {"city": "Paris"})


class TestNemotronConforms(ToolParserSuite):
    parser = NemotronToolParser
    tools = TOOLS
    samples = (
        ToolSample(NemotronToolParser.sample, calls=[WEATHER]),
        ToolSample(f"Looking.\n{PARIS}\n", "Looking.", [WEATHER]),
        ToolSample(f"One\n{PARIS}\ntwo {PARIS} three", "One\ntwo three", [WEATHER, WEATHER]),
        ToolSample(
            '<TOOLCALL>[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": [1, {"y": 2}]}}]</TOOLCALL>',
            calls=[("a", {}), ("b", {"x": [1, {"y": 2}]})],
        ),
        ToolSample(r'<TOOLCALL>[{"name": "open", "arguments": "{\"id\": 3}"}]</TOOLCALL>', calls=[("open", {"id": 3})]),
        ToolSample('<TOOLCALL>[{"name": "a", "arguments": ""}]</TOOLCALL>', calls=[("a", {})]),
        ToolSample('<TOOLCALL>{"name": "a"}</TOOLCALL>', calls=[("a", {})]),
        ToolSample('<TOOLCALL>[{"name": "a", "arguments": {"x": 1}}', calls=[("a", {"x": 1})]),
        ToolSample('<TOOLCALL>[{"name": "a", "arguments": {"x": 1}}</TOOLCALL> ok', "ok", [("a", {"x": 1})]),
        ToolSample(
            r'<TOOLCALL>[{"name": "f", "arguments": {"s": "</TOOLCALL>]\n\"北京\""}}]</TOOLCALL>',
            calls=[("f", {"s": '</TOOLCALL>]\n"北京"'})],
            literal=True,
        ),
        ToolSample("<TOOLCALL>[]</TOOLCALL>", "<TOOLCALL>[]</TOOLCALL>", literal=True),
        ToolSample("Write `<TOOLCALL>` so.", "Write `<TOOLCALL>` so.", literal=True),
        ToolSample(READ, calls=[("read", {"path": "a.txt", "n": 5})]),
        ToolSample(f"Reading.\n{READ}", "Reading.", [("read", {"path": "a.txt", "n": 5})]),
    )


def test_the_list_of_version_2_and_the_tags_of_version_3_are_read_by_one_parser(run, width):
    version_2 = (
        '<TOOLCALL>[{"name": "search", "arguments": {"filters": {"a": [1]}}}, '
        r'{"name": "open", "arguments": "{\"id\": 3}"}]</TOOLCALL>'
    )
    parser = NemotronToolParser(ParserContext(tools=TOOLS))
    assert fold(run(parser, f"{version_2}\n{READ}\n{PARIS}", width)).calls == [
        ("search", {"filters": {"a": [1]}}),
        ("open", {"id": 3}),
        ("read", {"path": "a.txt", "n": 5}),
        WEATHER,
    ]
