from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.xlam import XLAMToolParser

TOOLS = (Tool("a"), Tool("b"), Tool("get_weather"))
LIST = '[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 42}}]'
BOTH = [("a", {}), ("b", {"x": 42})]


class TestBareXLAMConforms(ToolParserSuite):
    parser = XLAMToolParser
    tools = TOOLS
    bare = True
    samples = (
        ToolSample(XLAMToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(LIST, calls=BOTH),
        ToolSample(f"\n{LIST}\n", calls=BOTH),
        ToolSample(f"```json\n{LIST}\n```", calls=BOTH),
        ToolSample(f"Looking.\n```\n{LIST}\n```\nDone.", "Looking.\nDone.", BOTH),
        ToolSample(f'{{"tool_calls": {LIST}}}', calls=BOTH),
        ToolSample('{"name": "a", "arguments": {}}', calls=BOTH[:1]),
        ToolSample(r'[{"name": "a", "arguments": {"s": "]}\"```北京\n"}}]', calls=[("a", {"s": ']}"```北京\n'})]),
        ToolSample('[{"name": "c", "arguments": {}}]', '[{"name": "c", "arguments": {}}]'),
        ToolSample("[1, 2] and [a](b) {c}", "[1, 2] and [a](b) {c}"),
        ToolSample(f"```python\nx = {LIST}\n```", f"```python\nx = {LIST}\n```"),
        ToolSample(f"`{LIST}`", f"`{LIST}`"),
    )


class TestMarkedXLAMConforms(ToolParserSuite):
    parser = XLAMToolParser
    tools = TOOLS
    samples = (
        ToolSample(f"[TOOL_CALLS]{LIST}", calls=BOTH, tools=()),
        ToolSample(f"Hi [TOOL_CALLS] {LIST}\n", "Hi", BOTH),
        ToolSample(f"<tool_call>{LIST}</tool_call>", calls=BOTH, tools=()),
        ToolSample('<tool_call>\n{"name": "f"}\n</tool_call> ok', "ok", [("f", {})]),
        ToolSample("`<tool_call>`", "`<tool_call>`", literal=True),
    )


@pytest.mark.parametrize(
    "wrapped",
    [LIST, f"```json\n{LIST}\n```", f"[TOOL_CALLS]{LIST}", f"<tool_call>{LIST}</tool_call>", f"</think>{LIST}"],
)
def test_each_call_comes_once_in_whatever_the_list_is_wrapped(run, width, wrapped):
    events = run(XLAMToolParser(ParserContext(tools=TOOLS)), wrapped, width)
    assert fold(events).calls == BOTH
    assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == '{}{"x": 42}'


def test_a_fence_that_holds_something_else_is_text(run, width):
    text = '```json\n{"name":"my-app","version":"1.0"}\n```\n```\n[1]\n[{"name": "a", "arguments": {}}]\n```'
    folded = fold(run(XLAMToolParser(ParserContext(tools=TOOLS)), text, width))
    assert folded.content == text
    assert folded.calls == []
