from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.longcat import LongCatToolParser


def block(body: str) -> str:
    return f"<longcat_tool_call>\n{body}\n</longcat_tool_call>"


PARIS = block('{"name": "get_weather", "arguments": {"city": "Paris"}}')
WEATHER = ("get_weather", {"city": "Paris"})


class TestLongCatConforms(ToolParserSuite):
    parser = LongCatToolParser
    samples = (
        ToolSample(LongCatToolParser.sample, calls=[WEATHER]),
        ToolSample(f"Let me look.\n{PARIS}", "Let me look.", [WEATHER]),
        ToolSample(f"{PARIS}{PARIS}", calls=[WEATHER, WEATHER]),
        ToolSample(f"One\n{PARIS}\ntwo\n{PARIS}\nthree", "One\ntwo\nthree", [WEATHER, WEATHER]),
        ToolSample('<longcat_tool_call>{"name":"f","arguments":{}}</longcat_tool_call>', calls=[("f", {})]),
        ToolSample(block('{"name": "f"}'), calls=[("f", {})]),
        ToolSample(block(r'{"name": "f", "arguments": "{\"a\": {\"b\": 1}}"}'), calls=[("f", {"a": {"b": 1}})]),
        ToolSample(
            block('{"name": "f", "arguments": {"s": "北京\n\\"}{\\" 🎉"}}'), calls=[("f", {"s": '北京\n"}{" 🎉'})]
        ),
        ToolSample(
            block('{"name": "f", "arguments": {"s": "</longcat_tool_call>"}}'),
            calls=[("f", {"s": "</longcat_tool_call>"})],
            literal=True,
        ),
        ToolSample(PARIS.removesuffix("\n</longcat_tool_call>"), calls=[WEATHER]),
        ToolSample(f"{block('no call')} ok", f"{block('no call')} ok", literal=True),
        ToolSample("The `<longcat_tool_call>` tag.", "The `<longcat_tool_call>` tag.", literal=True),
    )


def test_the_tags_of_hermes_are_text(run, width):
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    folded = fold(run(LongCatToolParser(ParserContext()), text, width))
    assert folded.content == text
    assert folded.calls == []
