from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold, join
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.deepseek_v3 import DeepSeekV3ToolParser
from vllm_mlx_parsers.tools.deepseek_v31 import DeepSeekV31ToolParser

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PARIS = ("get_weather", {"city": "Paris"})


def v3(name, arguments):
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{CALL_END}"


def v31(name, arguments):
    return f"{CALL}{name}{SEP}{arguments}{CALL_END}"


def section(*calls, between=""):
    return BEGIN + between.join(calls) + END


def parser():
    return DeepSeekV3ToolParser(ParserContext(tools=[WEATHER]))


class TestDeepSeekV3Conforms(ToolParserSuite):
    parser = DeepSeekV3ToolParser
    tools = (WEATHER,)
    samples = (
        ToolSample(DeepSeekV3ToolParser.sample, calls=[PARIS]),
        ToolSample("I look.\n" + section(v3("f", "{}"), v3("g", '{"x": 1}')), "I look.", [("f", {}), ("g", {"x": 1})]),
        ToolSample(section(v3("f", "{}"), v3("g", "{}"), between="\n"), calls=[("f", {}), ("g", {})]),
        ToolSample(f"One \n{section(v3('f', '{}'))}\ntwo", "One \ntwo", [("f", {})]),
        ToolSample(section(v3("f", "")), calls=[("f", {})]),
        ToolSample(section(f"{CALL}function{SEP}f{CALL_END}"), calls=[("f", {})]),
        ToolSample(
            section(f'{CALL}function{SEP}f\n{{"a": [1, {{"b": "}}"}}]}}{CALL_END}'),
            calls=[("f", {"a": [1, {"b": "}"}]})],
        ),
        ToolSample(f'{CALL}function{SEP}f\n```json\n{{"a": 1}}', calls=[("f", {"a": 1})]),
        ToolSample(f'{BEGIN}function{SEP}f\n```json\n{{"a": 1}}\n```', calls=[("f", {"a": 1})]),
        ToolSample(section(v3("f", '{\n  "s": "a```b \\"é\\" 北京"\n}')), calls=[("f", {"s": 'a```b "é" 北京'})]),
        ToolSample(section(v3("f", f'{{"s": "{CALL_END}{END}"}}')), calls=[("f", {"s": CALL_END + END})], literal=True),
        ToolSample(section(v31("f", '{"a": 1}')), calls=[("f", {"a": 1})]),
        ToolSample(section(v31("function", "{}")), calls=[("function", {})]),
        ToolSample(f"Say {BEGIN}hello{END}.", f"Say {BEGIN}hello{END}.", literal=True),
        ToolSample(f"Write `{BEGIN}` first.", f"Write `{BEGIN}` first.", literal=True),
    )


class TestDeepSeekV31Conforms(ToolParserSuite):
    parser = DeepSeekV31ToolParser
    tools = (WEATHER,)
    samples = (
        ToolSample(DeepSeekV31ToolParser.sample, calls=[PARIS]),
        ToolSample("I look." + section(v31("f", "{}"), v31("g", '{"x": 1}')), "I look.", [("f", {}), ("g", {"x": 1})]),
        ToolSample(section(v31("f", "")), calls=[("f", {})]),
        ToolSample(section(v31("f", "null")), calls=[("f", {})]),
        ToolSample(section(v31("f", '"{\\"a\\": 1}"')), calls=[("f", {"a": 1})]),
        ToolSample(section(v31("f", '```json\n{"a": 1}\n```')), calls=[("f", {"a": 1})]),
        ToolSample(section(v31("f", 'json\n{"a": 1}')), calls=[("f", {"a": 1})]),
        ToolSample(section(v31("f", '{"a": 1}}')), calls=[("f", {"a": 1})]),
        ToolSample(section(v3("f", '{"a": 1}')), calls=[("f", {"a": 1})]),
        ToolSample(f"{v31('f', '{}')} and{END} more", "and more", [("f", {})]),
        ToolSample(section(v31("f", '{"a": 1 2}')), section(v31("f", '{"a": 1 2}')), literal=True),
    )


@pytest.mark.parametrize("form", [v3, v31])
@pytest.mark.parametrize("kind", [DeepSeekV3ToolParser, DeepSeekV31ToolParser])
def test_calls_are_read_at_every_cut_and_their_arguments_do_not_begin_with_json(run, width, kind, form):
    text = section(form("get_weather", '{"city": "Tokyo"}'), form("get_weather", '{"city": "Oslo"}'))
    events = run(kind(ParserContext(tools=[WEATHER])), text, width)
    assert fold(events).content == ""
    assert fold(events).calls == [("get_weather", {"city": "Tokyo"}), ("get_weather", {"city": "Oslo"})]
    first = "".join(e.json for e in events if isinstance(e, ToolCallArguments) and e.index == 0)
    assert first == '{"city": "Tokyo"}'


def test_a_call_in_one_piece_is_not_lost():
    folded = fold(parser().parse(section(v3("get_weather", '{"city": "Tokyo"}'))))
    assert folded.calls == [("get_weather", {"city": "Tokyo"})]


def test_arguments_stream_while_they_are_generated():
    stream = parser()
    assert list(stream.feed(Chunk(f"Hi{BEGIN}{CALL}function{SEP}write\n```json\n"))) == [TextDelta("Hi")]
    start, arguments = stream.feed(Chunk('{"te'))
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolCallArguments(0, '{"te')
    assert list(stream.feed(Chunk('xt": "a'))) == [ToolCallArguments(0, 'xt": "a')]
    assert join(stream.feed(Chunk('"}'))) == [ToolCallArguments(0, '"}'), ToolCallEnd(0)]


def test_the_form_that_the_template_of_v31_renders_is_read(run, width, real_templates):
    assert f"{BEGIN}{CALL}" in real_templates["deepseek-ai-DeepSeek-V3.1"]
    assert f"function{SEP}example_function_name\n```json" in real_templates["llama-cpp-deepseek-r1"]
    assert fold(run(parser(), section(v31("get_weather", '{"city": "Paris"}')), width)).calls == [PARIS]
