from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.jamba import JambaToolParser

BOTH = [("a", {}), ("b", {"x": 42})]
LIST = '<tool_calls>[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 42}}]</tool_calls>'


class TestJambaConforms(ToolParserSuite):
    parser = JambaToolParser
    samples = (
        ToolSample(JambaToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(LIST, calls=BOTH),
        ToolSample(f" Looking. {LIST}", " Looking.", BOTH),
        ToolSample(f"One\n\n{LIST}\n\ntwo", "One\n\ntwo", BOTH),
        ToolSample(
            '<tool_calls>\n{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {"x": 42}}\n</tool_calls>',
            calls=BOTH,
        ),
        ToolSample(
            '<tool_calls>[{"name": "a"}]</tool_calls><tool_calls>[{"name": "a"}]</tool_calls>', calls=BOTH[:1] * 2
        ),
        ToolSample('<tool_calls>[{"name": "a", "arguments": {}, "id": "call_1"}]</tool_calls>', calls=BOTH[:1]),
        ToolSample(r'<tool_calls>[{"name": "b", "arguments": "{\"x\": 42}"}]</tool_calls>', calls=BOTH[1:]),
        ToolSample('<tool_calls>[{"name": "b", "arguments": {"x": 42}}', calls=BOTH[1:]),
        ToolSample(
            '<tool_calls>[{"name": "f", "arguments": {"s": "</tool_calls>\n\\"北京\\\\"}}]</tool_calls>',
            calls=[("f", {"s": '</tool_calls>\n"北京\\'})],
            literal=True,
        ),
        ToolSample("<tool_calls>[]</tool_calls>", "<tool_calls>[]</tool_calls>", literal=True),
        ToolSample('<tool_calls>[{"x": 1}]</tool_calls>', '<tool_calls>[{"x": 1}]</tool_calls>', literal=True),
        ToolSample("`<tool_calls>[…]`", "`<tool_calls>[…]`", literal=True),
    )


def test_an_empty_call_does_not_disturb_the_next_one(run, width):
    assert fold(run(JambaToolParser(ParserContext()), LIST, width)).calls == BOTH
