from __future__ import annotations

import re

import pytest

from vllm_mlx_core.api import Event, ParserContext, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.mistral import MistralToolParser


def parser() -> MistralToolParser:
    return MistralToolParser(ParserContext())


def ids(events: list[Event]) -> list[str]:
    return [event.id for event in events if isinstance(event, ToolCallStart)]


class TestMistralConforms(ToolParserSuite):
    parser = MistralToolParser
    samples = (
        ToolSample(MistralToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample("[TOOL_CALLS]f[ARGS]{}", calls=[("f", {})]),
        ToolSample(
            '[TOOL_CALLS]a[ARGS]{"x": 1}[TOOL_CALLS]b[ARGS]{"y": [2, {"z": "}"}]}',
            calls=[("a", {"x": 1}), ("b", {"y": [2, {"z": "}"}]})],
        ),
        ToolSample('[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{"a": 1}', calls=[("f", {"a": 1})]),
        ToolSample('Looking.\n[TOOL_CALLS]f[ARGS]{"a": "北京 🎉\\n"}\n', "Looking.", [("f", {"a": "北京 🎉\n"})]),
        ToolSample("a [TOOL_CALLS]f[ARGS]{} b[TOOL_CALLS]g[ARGS]{} c", "a b c", [("f", {}), ("g", {})]),
        ToolSample('[TOOL_CALLS]my-server.read_file{"path": "x"}', calls=[("my-server.read_file", {"path": "x"})]),
        ToolSample(r'[TOOL_CALLS]f[ARGS]"{\"a\": 1}"', calls=[("f", {"a": 1})]),
        ToolSample("[TOOL_CALLS]f[ARGS][TOOL_CALLS]g[ARGS]{}", calls=[("f", {}), ("g", {})]),
        ToolSample('[TOOL_CALLS]f[ARGS]{"s": "line\nbreak",}', calls=[("f", {"s": "line\nbreak"})]),
        ToolSample(
            '[TOOL_CALLS]f[ARGS]{"s": "[TOOL_CALLS]g[ARGS]{}"}',
            calls=[("f", {"s": "[TOOL_CALLS]g[ARGS]{}"})],
            literal=True,
        ),
        ToolSample('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 3}}]', calls=[("f", {"a": 3})]),
        ToolSample(
            '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcdefghi"}, {"id": "x", "name": "g"}] bye',
            "bye",
            [("f", {}), ("g", {})],
        ),
        ToolSample('[TOOL_CALLS]{"name": "f", "arguments": {"a": 3}}', calls=[("f", {"a": 3})]),
        ToolSample("[TOOL_CALLS] are markers", "[TOOL_CALLS] are markers", literal=True),
        ToolSample("[TOOL_CALLS]f[ARGS]5", "[TOOL_CALLS]f[ARGS]5", literal=True),
        ToolSample("Use `[TOOL_CALLS]f[ARGS]{}`.", "Use `[TOOL_CALLS]f[ARGS]{}`.", literal=True),
    )


def test_several_calls_by_name_are_read_in_order(run, width):
    text = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]add[ARGS]{"a": 1, "b": [2, 3]}'
    folded = fold(run(parser(), text, width))
    assert folded.calls == [("get_weather", {"city": "Paris"}), ("add", {"a": 1, "b": [2, 3]})]
    assert folded.content == ""


def test_a_call_id_between_name_and_arguments_is_the_id_of_the_call(run, width):
    events = run(parser(), "[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{}", width)
    assert fold(events).calls == [("f", {})]
    assert ids(events) == ["abc123XYZ"]


def test_the_list_form_gives_all_its_calls_and_numbers_stay_numbers(run, width):
    text = (
        '[TOOL_CALLS] [{"name": "calculator", "arguments": {"expression": "2+3"}}, '
        '{"name": "add", "arguments": {"a": 3, "b": 4}}]'
    )
    assert fold(run(parser(), text, width)).calls == [("calculator", {"expression": "2+3"}), ("add", {"a": 3, "b": 4})]


@pytest.mark.parametrize(
    "text", ["[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}", '[TOOL_CALLS][{"name": "f"}, {"name": "f"}]']
)
def test_ids_have_nine_letters_and_digits(run, width, text):
    first, second = ids(run(parser(), text, width))
    assert re.fullmatch("[A-Za-z0-9]{9}", first)
    assert re.fullmatch("[A-Za-z0-9]{9}", second)
    assert first != second


def test_an_id_that_the_templates_refuse_or_that_comes_twice_is_replaced(run, width):
    text = "".join(
        f"[TOOL_CALLS]f[CALL_ID]{call_id}[ARGS]{{}}" for call_id in ("abcdefghi", "abcdefghi", "call_3f2a-long")
    )
    first, second, third = ids(run(parser(), text, width))
    assert first == "abcdefghi"
    assert re.fullmatch("[A-Za-z0-9]{9}", second)
    assert re.fullmatch("[A-Za-z0-9]{9}", third)
    assert len({first, second, third}) == 3


def test_a_list_gives_the_ids_that_stand_before_the_arguments(run, width):
    text = '[TOOL_CALLS][{"name": "f", "id": "abcdefghi", "arguments": {}}]'
    assert ids(run(parser(), text, width)) == ["abcdefghi"]


def test_a_call_cut_off_leaves_no_marker(run, width):
    for text in (
        "Hi [TOOL_CA",
        "Hi [TOOL_CALLS]",
        "Hi [TOOL_CALLS]get_w",
        "Hi [TOOL_CALLS]f[CALL_ID]abc",
        "Hi [TOOL_CALLS]f[AR",
    ):
        folded = fold(run(parser(), text, width))
        assert folded.content.startswith("Hi")
        assert "[TOOL_CALLS]" not in folded.content
        assert folded.calls == []
