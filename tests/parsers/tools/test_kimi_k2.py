from __future__ import annotations

import json

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold, join
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser

BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENTS, CALL_END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
TOKYO = ("get_weather", {"city": "Tokyo"})


def call(call_id, arguments):
    return f"{CALL}{call_id}{ARGUMENTS}{arguments}{CALL_END}"


def section(*calls):
    return BEGIN + "".join(calls) + END


def parser():
    return KimiK2ToolParser(ParserContext(tools=[Tool("get_weather")]))


def ids(events):
    return [event.id for event in events if isinstance(event, ToolCallStart)]


class TestKimiK2Conforms(ToolParserSuite):
    parser = KimiK2ToolParser
    samples = (
        ToolSample(KimiK2ToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(
            "I look." + section(call("functions.f:0", '{"x": 1}'), call("functions.g:1", "{}")),
            "I look.",
            [("f", {"x": 1}), ("g", {})],
        ),
        ToolSample(f"A\n{section(call('functions.f:0', '{}'))}\nB", "A\nB", [("f", {})]),
        ToolSample(section(call("functions.f:0", "")), calls=[("f", {})]),
        ToolSample(section(f"{CALL}functions.f:0{CALL_END}"), calls=[("f", {})]),
        ToolSample(section(call("functions.a.b-c:12", "{}")), calls=[("a.b-c", {})]),
        ToolSample(section(call("functions.f:\n0\n", "{}")), calls=[("f", {})]),
        ToolSample(section(call("f", "{}"), call("f:0", "{}")), calls=[("f", {}), ("f", {})]),
        ToolSample(
            section(call("functions.f:0", '{"a": 1}')).replace("calls_section", "call_section"), calls=[("f", {"a": 1})]
        ),
        ToolSample(call("functions.f:0", '{"a": {"b": "}"}}'), calls=[("f", {"a": {"b": "}"}})]),
        ToolSample(f'{BEGIN}{CALL}functions.f:0{ARGUMENTS}{{"a": 1}}', calls=[("f", {"a": 1})]),
        ToolSample(f"{BEGIN}{call('functions.f:0', '{}')} then{END} more", "then more", [("f", {})]),
        ToolSample(f"A{BEGIN}{END} B", "A B"),
        ToolSample(
            section(call("functions.f:0", f'{{"s": "{CALL_END}{END} \\"é\\" 北京"}}')),
            calls=[("f", {"s": f'{CALL_END}{END} "é" 北京'})],
            literal=True,
        ),
        ToolSample(f"See {END} there.", f"See {END} there.", literal=True),
        ToolSample(f"Write `{BEGIN}`.", f"Write `{BEGIN}`.", literal=True),
        ToolSample(section(call("functions.f:0", "hello")), section(call("functions.f:0", "hello")), literal=True),
    )


def test_the_id_of_a_call_is_what_the_model_wrote_and_the_name_is_a_part_of_it(run, width):
    weather = call("functions.get_weather:0", '{"city": "Tokyo"}')
    events = run(parser(), "I'll check." + section(weather, call("functions.get_time:1", "{}")), width)
    assert ids(events) == ["functions.get_weather:0", "functions.get_time:1"]
    assert fold(events).content == "I'll check."
    assert fold(events).calls == [TOKYO, ("get_time", {})]


def test_ids_count_on_from_earlier_turns(run, width):
    assert ids(run(parser(), section(call("functions.f:7", "{}"), call("functions.g:8", "{}")), width)) == [
        "functions.f:7",
        "functions.g:8",
    ]


@pytest.mark.parametrize("written", [("functions.f:0", "functions.f:0"), ("f", "f"), ("f:0", "functions.f:0")])
def test_calls_whose_ids_are_equal_or_missing_get_ids_of_their_own(run, width, written):
    events = run(parser(), section(*(call(each, "{}") for each in written)), width)
    assert ids(events) == ["functions.f:0", "functions.f:1"]


def test_white_space_in_an_id_is_dropped(run, width):
    assert ids(run(parser(), section(call(" functions.f:\n0\n", "{}")), width)) == ["functions.f:0"]


def test_the_singular_section_marker_does_not_leak(run, width):
    text = "I'll check." + section(call("functions.get_weather:0", '{"city": "Tokyo"}'))
    folded = fold(run(parser(), text.replace("tool_calls_section", "tool_call_section"), width))
    assert folded.content == "I'll check."
    assert folded.calls == [TOKYO]


def test_long_arguments_stream_while_they_are_generated():
    value = "word " * 2000
    text = section(call("functions.write:0", json.dumps({"text": value})))
    stream = parser()
    events = []
    most_held = given = 0
    for start in range(0, len(text), 4):
        events.append(list(stream.feed(Chunk(text[start : start + 4]))))
        given += sum(len(e.json) for e in events[-1] if isinstance(e, ToolCallArguments))
        if given and start < len(text) - len(CALL_END + END) - 8:
            most_held = max(most_held, start + 4 - given - len(f"{BEGIN}{CALL}functions.write:0{ARGUMENTS}"))
    assert most_held <= 4
    assert fold(e for part in (*events, stream.finish()) for e in part).calls == [("write", {"text": value})]


def test_name_and_arguments_come_as_soon_as_they_are_known():
    stream = parser()
    assert list(stream.feed(Chunk(f"Hi{BEGIN}{CALL}functions.f:0"))) == [TextDelta("Hi")]
    assert list(stream.feed(Chunk(f'{ARGUMENTS}{{"a'))) == [
        ToolCallStart(0, "functions.f:0", "f"),
        ToolCallArguments(0, '{"a'),
    ]
    assert join(stream.feed(Chunk('": 1}'))) == [ToolCallArguments(0, '": 1}'), ToolCallEnd(0)]


@pytest.mark.parametrize("template", ["moonshotai-Kimi-K2", "Kimi-K2-Instruct", "Kimi-K2-Thinking"])
def test_the_templates_write_the_markers_that_are_read(real_templates, template):
    assert all(marker in real_templates[template] for marker in (BEGIN, END, CALL, CALL_END, ARGUMENTS))


def test_white_space_that_is_none_to_json_ends_the_reading_of_an_id_as_anything_else_does(run, width):
    for space in ("\xa0", "\x0b", "\u2028", "\u3000"):
        text = KimiK2ToolParser.sample.replace("functions.", f"functions.{space}")
        assert fold(run(KimiK2ToolParser(ParserContext()), text, width)).content == text
