from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.phi4_mini import Phi4MiniToolParser

BOTH = [("a", {}), ("b", {"x": 42})]
LIST = '[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 42}}]'


class TestPhi4MiniConforms(ToolParserSuite):
    parser = Phi4MiniToolParser
    extra_markers = ("functools[",)
    samples = (
        ToolSample(Phi4MiniToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"functools{LIST}", calls=BOTH),
        ToolSample(f"Sure. functools{LIST}\n", "Sure.", BOTH),
        ToolSample(f"One functools{LIST} two", "One two", BOTH),
        ToolSample(f"<|tool_call|>{LIST}<|/tool_call|>", calls=BOTH),
        ToolSample('<|tool_call|>{"name": "a", "arguments": {}}<|/tool_call|> ok', "ok", BOTH[:1]),
        ToolSample('functools[{"name": "a"}, {"name": "b", "parameters": {"x": 42}}]', calls=BOTH),
        ToolSample(r'functools[{"name": "f", "arguments": "{\"a\": [1]}"}]', calls=[("f", {"a": [1]})]),
        ToolSample(r'functools[{"name": "f", "arguments": {"s": "]}\"é🎉\n"}}]', calls=[("f", {"s": ']}"é🎉\n'})]),
        ToolSample('functools[{"name": "b", "arguments": {"x": 42}}', calls=BOTH[1:]),
        ToolSample("import functools\nfunctools.cache", "import functools\nfunctools.cache"),
        ToolSample("functools[0]", "functools[0]", literal=True),
        ToolSample("`functools[{}]`", "`functools[{}]`", literal=True),
    )


def test_an_empty_call_does_not_disturb_the_next_one(run, width):
    assert fold(run(Phi4MiniToolParser(ParserContext()), f"functools{LIST}", width)).calls == BOTH
