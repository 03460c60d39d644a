from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.granite import GraniteToolParser

A = '{"name": "a", "arguments": {"x": 1}}'
B = '{"name": "b", "arguments": {}}'
BOTH = [("a", {"x": 1}), ("b", {})]


class TestGraniteConforms(ToolParserSuite):
    parser = GraniteToolParser
    samples = (
        ToolSample(GraniteToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"<|tool_call|>[{A}, {B}]", calls=BOTH),
        ToolSample(f"<|tool_call|> [{A},\n {B}]\n", calls=BOTH),
        ToolSample(f"Looking.\n<|tool_call|>[{A}] Done.", "Looking.\nDone.", BOTH[:1]),
        ToolSample(f"a <|tool_call|>[{A}]\nb<|tool_call|>[{B}] c", "a b c", BOTH),
        ToolSample(f"<|tool_call|>{A}", calls=BOTH[:1]),
        ToolSample(f"<tool_call>[{A}, {B}]", calls=BOTH),
        ToolSample(f"<tool_call>\n{A}\n</tool_call>\n<tool_call>\n{B}\n</tool_call>", calls=BOTH),
        ToolSample(f"<function_call> {A}<function_call> {B}", calls=BOTH),
        ToolSample(f"<function_call>{A}\n<function_call> {B} ok", "ok", BOTH),
        ToolSample(f"<|tool_call|>[{A} {B}", calls=BOTH),
        ToolSample(f"<|tool_call|>[{A}, {B},]]", calls=BOTH),
        ToolSample(
            r'<|tool_call|>[{"name": "f", "arguments": {"s": "]\n}<|tool_call|>[\"é🎉"}}]',
            calls=[("f", {"s": ']\n}<|tool_call|>["é🎉'})],
            literal=True,
        ),
        ToolSample('<|tool_call|>[{"name": "f"}, {"name": "g", "arguments": null}]', calls=[("f", {}), ("g", {})]),
        ToolSample("<|tool_call|>[] none", "<|tool_call|>[] none", literal=True),
        ToolSample(f"<|tool_call|>[{A}, 5]", "5]", BOTH[:1], literal=True),
        ToolSample("see `<|tool_call|>`", "see `<|tool_call|>`", literal=True),
    )


def parser() -> GraniteToolParser:
    return GraniteToolParser(ParserContext(tools=[Tool("a"), Tool("b")]))


def test_a_list_of_calls_is_read_whole_and_in_pieces(run, width):
    assert fold(run(parser(), f"<|tool_call|>[{A}, {B}]", width)).calls == BOTH


def test_arguments_written_as_a_json_string_are_decoded(run, width):
    text = r'<tool_call>{"name": "get_db_config", "arguments": "{\n  \"param\": \"max_connections\"\n}"}</tool_call>'
    events = run(parser(), text, width)
    assert fold(events).calls == [("get_db_config", {"param": "max_connections"})]


@pytest.mark.parametrize("marker", ["<|tool_call|>", "<tool_call>", "<function_call>"])
def test_every_marker_may_be_followed_by_a_call_or_a_list(run, width, marker):
    for body in (A, f"[{A}]"):
        events = run(parser(), f"{marker}{body}", width)
        assert fold(events).calls == BOTH[:1]
        assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == '{"x": 1}'
