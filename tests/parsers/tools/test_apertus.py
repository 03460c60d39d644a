from __future__ import annotations

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.apertus import ApertusToolParser

TOOLS = (Tool("f"), Tool("g"))


def block(*calls: str) -> str:
    return f"<|tools_prefix|>[{', '.join(calls)}]<|tools_suffix|>"


def parser() -> ApertusToolParser:
    return ApertusToolParser(ParserContext(tools=TOOLS))


CALL, OTHER = '{"f": {"a": 1}}', '{"g": {}}'


class TestApertusConforms(ToolParserSuite):
    parser = ApertusToolParser
    tools = TOOLS
    samples = (
        ToolSample(ApertusToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Hi\n\n{block(CALL, CALL)} \nbye", "Hi\n\nbye", [("f", {"a": 1}), ("f", {"a": 1})]),
        ToolSample(block(CALL) + block(OTHER), calls=[("f", {"a": 1}), ("g", {})]),
        ToolSample(block('{"f": {"a": "é \\"}], {"}}'), calls=[("f", {"a": 'é "}], {'})]),
        ToolSample(block(' { "f" : null } '), calls=[("f", {})]),
        ToolSample(block('{"f": "{\\"a\\": 1}"}'), calls=[("f", {"a": 1})]),
        ToolSample('<|tools_prefix|>{"f": {"a": {"b": [2]}}<|tools_suffix|>', calls=[("f", {"a": {"b": [2]}})]),
        ToolSample(block("no call"), block("no call"), literal=True),
        ToolSample(block(), block(), literal=True),
        ToolSample("`<|tools_prefix|>` begins it", "`<|tools_prefix|>` begins it", literal=True),
    )


def test_text_streams_while_it_is_generated():
    stream = parser()
    events = list(stream.feed(Chunk('<|tools_prefix|>[{"f": {"a": "x')))
    assert fold(events).unfinished == [("f", '{"a": "x')]
    assert list(stream.feed(Chunk("yz"))) == [ToolCallArguments(0, "yz")]
