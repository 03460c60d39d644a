from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.raw_json import JSONToolParser

TOOLS = (Tool("get_weather"), Tool("ping"), Tool("Alice"), Tool("my-app"))
PARIS = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
PING = '{"name": "ping", "parameters": {}}'
BOTH = [("get_weather", {"city": "Paris"}), ("ping", {})]


def parser() -> JSONToolParser:
    return JSONToolParser(ParserContext(tools=TOOLS))


class TestJSONConforms(ToolParserSuite):
    parser = JSONToolParser
    tools = TOOLS
    bare = True
    samples = (
        ToolSample(JSONToolParser.sample, calls=BOTH[:1]),
        ToolSample(f"[{PARIS}, {PING}]", calls=BOTH),
        ToolSample(f"{PARIS}\n{PING}", calls=BOTH),
        ToolSample(f"```json\n{PARIS}\n```", calls=BOTH[:1]),
        ToolSample(f"```\n[{PARIS},\n{PING}]\n```\n", calls=BOTH),
        ToolSample(f"Looking.\n{PARIS}\nDone.", "Looking.\nDone.", BOTH[:1]),
        ToolSample(f'{{"tool_calls": [{PARIS}, {PING}]}}', calls=BOTH),
        ToolSample('{"id": "1", "type": "function", "name": "ping", "arguments": "{}"}', calls=BOTH[1:]),
        ToolSample('{"arguments": {"a": [{}, "}", "é"]}, "name": "ping"}', calls=[("ping", {"a": [{}, "}", "é"]})]),
        ToolSample('{"name": "ping", "arguments": {"s": "a\nb\\"",}}', calls=[("ping", {"s": 'a\nb"'})]),
        ToolSample('{"name": "ping"}', '{"name": "ping"}'),
        ToolSample('{"name": "pong", "arguments": {}}', '{"name": "pong", "arguments": {}}'),
        ToolSample(f'{{"a": {PING}}}', f'{{"a": {PING}}}'),
        ToolSample(f"Inline `{PING}` is text", f"Inline `{PING}` is text"),
        ToolSample("[]", "[]"),
        ToolSample('{"name": "ping", "arguments": 5}', '{"name": "ping", "arguments": 5}'),
        ToolSample(PING, PING, tools=()),
    )


@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name":"my-app","version":"1.0"}\n```',
        '{"name": "Alice"}',
        '{"name":"my-app","version":"1.0"}',
        '{"people": [{"name": "Alice", "arguments": {}}]}',
        "Say {name} or [Alice].",
    ],
)
def test_json_without_arguments_or_inside_other_json_stays_content(run, width, text):
    folded = fold(run(parser(), text, width))
    assert folded.content == text
    assert folded.calls == []


def test_a_call_that_is_cut_off_before_it_can_be_told_is_text(run, width):
    text = 'Hi {"name": "get_weather"'
    assert fold(run(parser(), text, width)).content == text


def test_an_answer_in_json_streams():
    stream = parser()
    list(stream.feed(Chunk('{"people": [{"name": "Alice')))
    assert list(stream.feed(Chunk(" and Bob"))) == [TextDelta(" and Bob")]
