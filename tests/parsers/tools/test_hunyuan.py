from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.hunyuan import HunyuanToolParser

BOTH = [("a", {}), ("b", {"x": 42})]
LIST = '<tool_calls>[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"x": 42}}]</tool_calls>'
PROPERTIES = {"path": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}}
TOOLS = (Tool("read", parameters={"type": "object", "properties": PROPERTIES}),)


def hy3(name: str, suffix: str = "", **arguments: str) -> str:
    """Write one call as Hy3's chat template does."""
    parts = [f"<tool_call>{name}<tool_sep>\n"]
    parts += [f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items()]
    return "".join((*parts, "</tool_call>")).replace(">", f"{suffix}>") + "\n"


class TestHunyuanConforms(ToolParserSuite):
    parser = HunyuanToolParser
    tools = TOOLS
    samples = (
        ToolSample(HunyuanToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"<answer>{LIST}\n</answer>", calls=BOTH),
        ToolSample(f"<answer>\nLooking.\n{LIST}\n</answer>", "Looking.", BOTH),
        ToolSample(f"Looking.\n{LIST}\n</answer>", "Looking.", BOTH),
        ToolSample(f"One {LIST} two", "One two", BOTH),
        ToolSample("<answer>\nHello,\n\nyou.\n</answer>", "Hello,\n\nyou."),
        ToolSample("Write `<answer>` so.", "Write `<answer>` so.", literal=True),
        ToolSample('<tool_calls>[{"name": "a"}', calls=BOTH[:1]),
        ToolSample(
            r'<tool_calls>[{"name": "f", "arguments": {"s": "</answer>\"北京\n"}}]</tool_calls>',
            calls=[("f", {"s": '</answer>"北京\n'})],
        ),
        ToolSample(
            "<tool_calls>\n" + hy3("read", path="a b.txt", n="5") + "</tool_calls>",
            calls=[("read", {"path": "a b.txt", "n": 5})],
        ),
        ToolSample("<tool_calls><tool_call>now<tool_sep></tool_call></tool_calls>", calls=[("now", {})]),
        ToolSample(
            "<tool_calls>\n" + hy3("a") + hy3("read", o='{"k": [1]}', path="</arg_value> x") + "</tool_calls>",
            calls=[("a", {}), ("read", {"o": {"k": [1]}, "path": "</arg_value> x"})],
            literal=True,
        ),
        ToolSample(
            "Hi<tool_calls:opensource>\n" + hy3("read", ":opensource", path=" é ") + "</tool_calls:opensource>",
            "Hi",
            [("read", {"path": " é "})],
        ),
        ToolSample('<tool_calls><tool_call>b<tool_sep>{"x": 42}</tool_call></tool_calls>', calls=BOTH[1:]),
        ToolSample(hy3("read", n="5"), calls=[("read", {"n": 5})]),
        ToolSample("<tool_calls> are tags", "<tool_calls> are tags", literal=True),
    )


def test_an_empty_call_does_not_disturb_the_next_one(run, width):
    assert fold(run(HunyuanToolParser(ParserContext()), LIST, width)).calls == BOTH


@pytest.mark.parametrize("suffix", ["", ":opensource"])
def test_values_between_tags_get_their_types_from_the_schema(run, width, suffix):
    text = hy3("read", suffix, path="5", n="5", o='{"a": null}')
    parser = HunyuanToolParser(ParserContext(tools=TOOLS))
    assert fold(run(parser, text, width)).calls == [("read", {"path": "5", "n": 5, "o": {"a": None}})]


def test_a_value_that_does_not_fit_its_type_stays_a_string(run, width):
    parser = HunyuanToolParser(ParserContext(tools=TOOLS))
    assert fold(run(parser, hy3("read", n="2026-01-15"), width)).calls == [("read", {"n": "2026-01-15"})]
