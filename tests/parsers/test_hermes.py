from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import (
    Chunk,
    Event,
    ParserContext,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import check_events, fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.hermes import HermesToolParser


def block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


def render(name: str, arguments: object, *, ascii_only: bool = False) -> str:
    """Write a call as Qwen's chat template does."""
    call = f'{{"name": {json.dumps(name)}, "arguments": {json.dumps(arguments, ensure_ascii=ascii_only)}}}'
    return block(call)


def parser(*tools: str) -> HermesToolParser:
    return HermesToolParser(ParserContext(tools=[Tool(name) for name in tools]))


PARIS = render("get_weather", {"city": "Paris"})


class TestHermesConforms(ToolParserSuite):
    parser = HermesToolParser
    tools = (Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),)
    samples = (
        ToolSample(PARIS, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f"Let me look.\n{PARIS}", "Let me look.", [("get_weather", {"city": "Paris"})]),
        ToolSample(f"{PARIS}\n{render('b', {'x': 42})}", calls=[("get_weather", {"city": "Paris"}), ("b", {"x": 42})]),
        ToolSample(
            f"One\n\n{PARIS}\n\ntwo \n{render('b', {})}\nthree\n",
            "One\n\ntwo \nthree\n",
            [("get_weather", {"city": "Paris"}), ("b", {})],
        ),
        ToolSample('<tool_call>{"name":"f","arguments":{"id":42}}</tool_call>', calls=[("f", {"id": 42})]),
        ToolSample(block('{"arguments": {"a": [1, {"b": "}"}]}, "name": "f"}'), calls=[("f", {"a": [1, {"b": "}"}]})]),
        ToolSample(block('{"id": 7, "name": "f", "extra": {"name": "g"}, "arguments": {}}'), calls=[("f", {})]),
        ToolSample(block('{"name": "f"}'), calls=[("f", {})]),
        ToolSample(block('{"name": "f", "arguments": null}'), calls=[("f", {})]),
        ToolSample(block('{"name": "f", "arguments": ""}'), calls=[("f", {})]),
        ToolSample(block('{"name": "f", "parameters": {"a": 1}}'), calls=[("f", {"a": 1})]),
        ToolSample(block(r'{"name": "f", "arguments": "{\n  \"p\": \"x\"\n}"}'), calls=[("f", {"p": "x"})]),
        ToolSample(block(r'{"arguments": "{\"p\": \"\\n\"}", "name": "f"}'), calls=[("f", {"p": "\n"})]),
        ToolSample(
            block('{"name": "w", "arguments": {"text": "line1\nline2\t"}}'), calls=[("w", {"text": "line1\nline2\t"})]
        ),
        ToolSample(block(r'{"name": "w", "arguments": {"text": "it\'s", }}'), calls=[("w", {"text": "it's"})]),
        ToolSample(
            render("f", {"a": "</tool_call> <tool_call>"}),
            calls=[("f", {"a": "</tool_call> <tool_call>"})],
            literal=True,
        ),
        ToolSample(render("f", {"s": '"\\{}[]\\"'}), calls=[("f", {"s": '"\\{}[]\\"'})]),
        ToolSample(render("f", {"city": "北京", "e": "🎉"}), calls=[("f", {"city": "北京", "e": "🎉"})]),
        ToolSample(render("f", {"q": "é🎉"}, ascii_only=True), calls=[("f", {"q": "é🎉"})]),
        ToolSample(PARIS.removesuffix("\n</tool_call>"), calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(PARIS.removesuffix("ol_call>"), calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(PARIS.replace("}}", "}}}"), calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(
            block('{"name": "a", "arguments": {}}\n{"name": "b", "arguments": {}}'), calls=[("a", {}), ("b", {})]
        ),
        ToolSample(f"Say {block('hello')} ok", f"Say {block('hello')} ok", literal=True),
        ToolSample(
            f"A {block('not a call')}\n{PARIS}",
            f"A {block('not a call')}",
            [("get_weather", {"city": "Paris"})],
            literal=True,
        ),
        ToolSample("Use the `<tool_call>` tag.", "Use the `<tool_call>` tag.", literal=True),
        ToolSample(render("f", {"a": 1}), calls=[("f", {"a": 1})], tools=()),
    )


def test_a_streaming_call_is_a_call_as_in_the_whole_text(run, width):
    """The call comes as a call whatever the cut: no tag in the content, no call missed, with text before it."""
    for tools in ((), ("get_weather",)):
        folded = fold(run(parser(*tools), f"Let me look.\n{PARIS}\n{PARIS}", width))
        assert folded.content == "Let me look."
        assert folded.calls == [("get_weather", {"city": "Paris"})] * 2


def test_each_call_has_one_start_with_a_random_id_and_its_own_index(run, width):
    events = run(parser(), PARIS * 3, width)
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    assert [start.index for start in starts] == [0, 1, 2]
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", start.id) for start in starts)
    assert len({start.id for start in starts}) == 3


@pytest.mark.parametrize(
    "body", ['{"name": "ping", "arguments": {}}', '{"name": "ping"}', '{"name": "ping", "arguments": null}']
)
def test_a_call_without_arguments_has_the_arguments_of_an_empty_object(run, width, body):
    events = run(parser(), block(body), width)
    assert "".join(event.json for event in events if isinstance(event, ToolCallArguments)) == "{}"
    assert fold(events).calls == [("ping", {})]


def test_a_raw_newline_in_a_string_is_escaped(run, width):
    events = run(parser(), block('{"name": "write", "arguments": {"text": "line1\nline2"}}'), width)
    assert fold(events).calls == [("write", {"text": "line1\nline2"})]


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "f", "arguments": {"a": }}',
        "{name: 'f'}",
        '{"arguments": {}}',
        '{"name": ""}',
        '{"name": 5}',
        "[]",
        "",
    ],
)
def test_a_block_that_is_no_call_is_text_and_nothing_is_lost(run, width, body):
    text = f"before {block(body)} after"
    folded = fold(run(parser("f"), text, width))
    assert folded.content == text
    assert folded.calls == []


@pytest.mark.parametrize("arguments", ["[1]", "5", "true", '"Paris"', '"[1]"', r'"{\"a\": "'])
def test_arguments_that_are_no_object_make_no_call(run, width, arguments):
    text = block(f'{{"name": "f", "arguments": {arguments}}}')
    folded = fold(run(parser("f"), text, width))
    assert folded.content == text
    assert folded.calls == []


def test_broken_json_does_not_spoil_the_next_call(run, width):
    broken = block('{"name": "f", "arguments": {"a": 1 2}}')
    folded = fold(run(parser(), f"{broken}\n{PARIS}", width))
    assert folded.content == broken
    assert folded.calls == [("get_weather", {"city": "Paris"})]


def test_a_string_that_swallows_the_closing_tag_shows_that_the_json_is_broken(run, width):
    text = block('{"name": "f", "arguments": {"a": "never closed}}') + " bye"
    folded = fold(run(parser(), text, width))
    assert folded.content == text
    assert folded.calls == []


def test_json_outside_a_block_is_text(run, width):
    for text in (
        '```json\n{"name": "my-app", "version": "1.0"}\n```',
        '{"name": "f", "arguments": {}}',
        '{"name": "Alice"}',
    ):
        assert fold(run(parser("f", "my-app", "Alice"), text, width)).content == text


def test_a_proper_block_is_a_call_even_if_the_name_is_not_declared(run, width):
    assert fold(run(parser("other"), PARIS, width)).calls == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize(
    "arguments", [{"id": 42}, {"opts": {"a": {"b": 1}}}, {}, {"s": "}"}, {"a": []}, {"t": True, "n": None}]
)
def test_no_brace_is_lost_and_nothing_comes_twice(run, width, arguments):
    assert fold(run(parser(), render("f", arguments), width)).calls == [("f", arguments)]


def test_arguments_written_as_a_json_string_are_decoded(run, width):
    text = (
        '<tool_call>{"name": "get_db_config", "arguments": "{\\n  \\"param\\": \\"max_connections\\"\\n}"}</tool_call>'
    )
    assert fold(run(parser(), text, width)).calls == [("get_db_config", {"param": "max_connections"})]


def test_half_a_surrogate_pair_in_a_decoded_string_can_be_sent(run, width):
    events = run(parser(), block(r'{"name": "f\ud83d", "arguments": "{\"a\": \"\ud83d\"}"}'), width)
    assert fold(events).calls == [("f\ufffd", {"a": "\ufffd"})]


def test_unicode_stays_literal(run, width):
    arguments = {"city": "北京", "e": "🎉", "q": "é"}
    events = run(parser(), block('{"name": "f", "arguments": {"city": "北京", "e": "🎉", "q": "\\u00e9"}}'), width)
    assert fold(events).calls == [("f", arguments)]
    assert "北京" in "".join(event.json for event in events if isinstance(event, ToolCallArguments))


def test_text_around_calls_is_kept_and_the_white_space_before_them_joins_it(run, width):
    folded = fold(run(parser(), f"  One \n{PARIS}\n\n two\n{PARIS}\n three \n", width))
    assert folded.content == "  One \ntwo\nthree \n"
    assert len(folded.calls) == 2


def test_name_and_arguments_stream_while_they_are_generated():
    stream = parser()
    assert list(stream.feed(Chunk('Hi<tool_call>\n{"name": "wri'))) == [TextDelta("Hi")]
    (start,) = stream.feed(Chunk('te"'))
    assert isinstance(start, ToolCallStart)
    assert (start.index, start.name) == (0, "write")
    assert list(stream.feed(Chunk(', "arguments": {"te'))) == [ToolCallArguments(0, '{"te')]
    assert list(stream.feed(Chunk('xt": "a\nb'))) == [ToolCallArguments(0, 'xt": "a\\nb')]
    assert list(stream.feed(Chunk('"}'))) == [ToolCallArguments(0, '"')]
    assert list(stream.feed(Chunk("}"))) == [ToolCallArguments(0, "}"), ToolCallEnd(0)]
    assert list(stream.feed(Chunk("\n</tool_call>"))) == []
    assert list(stream.finish()) == []


def test_arguments_before_the_name_wait_for_it():
    stream = parser()
    assert list(stream.feed(Chunk('<tool_call>{"arguments": {"a": 1}, "name": "f'))) == []
    start, arguments = stream.feed(Chunk('"'))
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolCallArguments(0, '{"a": 1')


def test_a_call_cut_off_before_its_name_leaves_nothing(run, width):
    folded = fold(run(parser(), 'Hi\n<tool_call>\n{"name": "get_wea', width))
    assert folded.content == "Hi"
    assert folded.calls == folded.unfinished == []


def test_a_call_cut_off_after_its_name_never_ends(run, width):
    folded = fold(run(parser(), 'Hi\n<tool_call>\n{"name": "f", "arguments": {"a": "x', width))
    assert folded.content == "Hi"
    assert folded.calls == []
    assert folded.unfinished == [("f", '{"a": "x')]


def test_text_without_markup_is_passed_on_at_once():
    stream = parser()
    assert [list(stream.feed(Chunk(word))) for word in ("It", " is", " sunny")] == [
        [TextDelta("It")],
        [TextDelta(" is")],
        [TextDelta(" sunny")],
    ]


class CountedText(str):
    """Text that counts the characters which are cut out of it or put behind others."""

    copied = 0

    def __getitem__(self, key):
        part = super().__getitem__(key)
        CountedText.copied += len(part)
        return CountedText(part)

    def __radd__(self, other):
        joined = CountedText(other + str(self))
        CountedText.copied += len(joined)
        return joined


@pytest.mark.parametrize(
    "piece",
    ["word ", "<", "<tool_call", "<tool_call>", PARIS, "\n", '{"', "a <"],
)
def test_work_grows_with_the_length_of_the_stream_only(piece):
    def work(count: int) -> int:
        CountedText.copied = 0
        stream = parser()
        for _ in range(count):
            for char in piece:
                stream.feed(Chunk(CountedText(char)))
        stream.finish()
        return CountedText.copied

    assert work(400) <= 4 * work(100) + 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
calls = st.lists(
    st.tuples(
        st.from_regex(r"[\w.:/-]{1,12}", fullmatch=True), st.dictionaries(st.text(max_size=8), json_values, max_size=4)
    ),
    min_size=1,
    max_size=3,
)


@settings(deadline=None)
@given(calls, st.booleans(), st.lists(st.integers(0, 1000), max_size=10).map(sorted))
def test_calls_written_by_the_template_are_read_back(calls, ascii_only, cuts):
    text = "\n".join(render(name, arguments, ascii_only=ascii_only) for name, arguments in calls)
    stream = parser()
    events: list[Event] = []
    for start, end in itertools.pairwise([0, *(min(cut, len(text)) for cut in cuts), len(text)]):
        events += stream.feed(Chunk(text[start:end]))
    events += stream.finish()
    check_events(events)
    assert fold(events).calls == calls
