"""The conformance suites must fail for parsers that are wrong."""

from __future__ import annotations

import builtins
import inspect
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from vllm_mlx_core.api import (
    Chunk,
    Event,
    ParserContext,
    ReasoningDelta,
    ReasoningParser,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)
from vllm_mlx_core.testing import ReasoningParserSuite, ToolParserSuite
from vllm_mlx_core.testing.events import Folded, check_events, fold, join
from vllm_mlx_core.testing.parsers import ReasoningSample, ToolSample
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
SAMPLE = ToolSample(f"Hi {CALL}", "Hi", [("f", {"a": 1})])
THOUGHT = ReasoningSample("<think>a</think>b", "a", "b")


def fails(suite: Any, test: str) -> bool:
    """Run one test of a suite by hand, with the suite's sample if it takes one, and return whether it fails."""
    method = getattr(suite(), test)
    arguments = suite.samples if "sample" in inspect.signature(method).parameters else ()
    try:
        method(*arguments)
    except Exception:  # a parser that raises fails its suite as well
        return True
    return False


def tool_suite(parser_class: type[ToolParser], sample: ToolSample = SAMPLE) -> type[ToolParserSuite]:
    class Suite(ToolParserSuite):
        parser = parser_class
        samples = (sample,)

    return Suite


def reasoning_suite(
    parser_class: type[ReasoningParser], sample: ReasoningSample = THOUGHT
) -> type[ReasoningParserSuite]:
    class Suite(ReasoningParserSuite):
        parser = parser_class
        samples = (sample,)

    return Suite


class Whole(ToolParser):
    """A base for bad parsers: waits for the whole text and then looks for the call."""

    special_tokens = ("<tool_call>", "</tool_call>")

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self.text = ""

    def feed(self, chunk: Chunk) -> Any:
        self.text += chunk.text
        return ()

    def finish(self) -> Any:
        match = re.fullmatch(r"(?s)(.*?)\s*<tool_call>(.*)</tool_call>", self.text)
        if not match:
            return [TextDelta(self.text)] if self.text else []
        try:
            call = json.loads(match[2])
            name, arguments = call["name"], json.dumps(dict(call["arguments"]))
        except (ValueError, KeyError, TypeError):
            return [TextDelta(self.text)]
        text = [TextDelta(match[1])] if match[1] else []
        return [*text, ToolCallStart(0, "1", name), ToolCallArguments(0, arguments), ToolCallEnd(0)]


def test_a_right_parser_passes():
    for suite in (tool_suite(HermesToolParser), reasoning_suite(Qwen3ReasoningParser)):
        assert not [name for name in dir(suite) if name.startswith("test_") and fails(suite, name)]


def test_a_parser_that_waits_for_the_end_is_found():
    assert fails(tool_suite(Whole), "test_plain_text_is_not_held_back")


def test_a_parser_that_looks_at_each_chunk_alone_is_found():
    class Naive(Whole):
        def feed(self, chunk: Chunk) -> Any:
            self.text = chunk.text
            return super().finish()

        def finish(self) -> Any:
            return []

    suite = tool_suite(Naive)
    assert fails(suite, "test_a_sample_gives_the_same_at_every_cut")
    assert fails(suite, "test_a_sample_gives_the_same_at_random_cuts")


def test_a_parser_that_completes_calls_which_were_cut_off_is_found():
    class Eager(HermesToolParser):
        def finish(self) -> Any:
            events = list(super().finish())
            if self._open:
                events.append(ToolCallEnd(0))
            return events

    assert fails(tool_suite(Eager), "test_every_truncation_of_a_sample_keeps_the_rules")


def test_a_parser_that_loses_what_it_held_is_found():
    class Lossy(HermesToolParser):
        def finish(self) -> Any:
            return []

    assert fails(tool_suite(Lossy), "test_plain_text_comes_out_unchanged")


def test_a_parser_that_loses_text_after_a_closing_marker_is_found():
    class Silenced(HermesToolParser):
        read = ""

        def feed(self, chunk: Chunk) -> Any:
            for char in chunk.text:
                is_silent = "</tool_call>" in self.read and "<tool_call>" not in self.read
                self.read += char
                events = super().feed(Chunk(char))
                if not is_silent:
                    yield from events

    assert fails(tool_suite(Silenced), "test_any_text_keeps_the_rules")


def test_a_parser_that_passes_calls_on_only_when_they_are_complete_is_found():
    class Holding(HermesToolParser):
        def __init__(self, context: ParserContext) -> None:
            super().__init__(context)
            self.waiting: list[Event] = []

        def feed(self, chunk: Chunk) -> Any:
            self.waiting += super().feed(chunk)
            if self._open:
                return []
            events, self.waiting = self.waiting, []
            return events

    assert fails(tool_suite(Holding), "test_calls_are_not_held_back")


def test_a_parser_that_raises_on_garbage_is_found():
    class Raising(Whole):
        def finish(self) -> Any:
            if "</tool_call>" in self.text and "<tool_call>" not in self.text:
                raise ValueError("no call")
            return super().finish()

    assert fails(tool_suite(Raising), "test_any_text_keeps_the_rules")


def test_a_parser_that_shares_state_is_found():
    class Shared(HermesToolParser):
        shared: list[str] = []  # noqa: RUF012 - the fault to be found

        def feed(self, chunk: Chunk) -> Any:
            self.shared.append(chunk.text)
            return super().feed(Chunk(self.shared.pop(0) if len(self.shared) == 1 else "".join(self.shared)))

        def finish(self) -> Any:
            self.shared.append("x")
            return super().finish()

    assert fails(tool_suite(Shared), "test_two_completions_at_once_do_not_mix")


def test_a_marker_in_the_content_is_found():
    class Leaky(Qwen3ReasoningParser):
        def feed(self, chunk: Chunk) -> Any:
            return [TextDelta(chunk.text)] if chunk.text else []

        def finish(self) -> Any:
            return []

    suite = reasoning_suite(Leaky)
    assert fails(suite, "test_a_sample_leaks_no_marker")
    assert fails(suite, "test_a_sample_gives_what_it_should")


def test_reasoning_that_is_swallowed_is_found():
    class Swallowing(Qwen3ReasoningParser):
        def feed(self, chunk: Chunk) -> Any:
            return [event for event in super().feed(chunk) if isinstance(event, TextDelta)]

    suite = reasoning_suite(Swallowing, ReasoningSample("<think>a</think>b", "", "b"))
    assert fails(suite, "test_a_sample_loses_no_text")
    assert fails(suite, "test_the_samples_say_what_the_format_is")


def test_a_reasoning_parser_without_markers_is_found():
    class Nameless(ReasoningParser):
        def feed(self, chunk: Chunk) -> Any:
            return [TextDelta(chunk.text)] if chunk.text else []

        def finish(self) -> Any:
            return []

    assert fails(reasoning_suite(Nameless), "test_the_parser_knows_how_a_prompt_opens_the_thinking")


def test_a_reasoning_parser_whose_marker_no_prompt_can_end_with_is_found():
    class Trailing(ReasoningParser):
        start, end = "<think>\n", "</think>"

        def feed(self, chunk: Chunk) -> Any:
            return [TextDelta(chunk.text)] if chunk.text else []

        def finish(self) -> Any:
            return []

    assert fails(reasoning_suite(Trailing), "test_the_parser_knows_how_a_prompt_opens_the_thinking")


def test_a_reasoning_parser_that_never_says_whether_it_thinks_is_found():
    class Mute(Qwen3ReasoningParser):
        thinking = property(lambda self: False, lambda self, value: None)

    assert fails(reasoning_suite(Mute), "test_thinking_is_true_exactly_inside_the_thinking")


def test_a_reasoning_parser_that_says_it_at_the_end_of_each_chunk_is_found():
    class Late(Qwen3ReasoningParser):
        def feed(self, chunk: Chunk) -> Any:
            events = list(super().feed(chunk))
            self.thinking = any(isinstance(event, ReasoningDelta) for event in events)
            return events

    assert fails(reasoning_suite(Late), "test_thinking_is_the_same_at_every_cut")


def test_a_parser_that_needs_more_of_a_marker_than_a_token_is_found():
    class Halves(Whole):
        def feed(self, chunk: Chunk) -> Any:
            return [TextDelta(chunk.text)] if chunk.text == "<tool_call>" else super().feed(chunk)

    assert fails(tool_suite(Halves), "test_a_sample_gives_the_same_token_by_token")


@pytest.mark.parametrize(
    ("text", "output", "fair"),
    [
        ("a <m> b", "a b", True),
        ("a <m> b", "ab", True),
        ("a <m> b", "a <m> b", True),
        ("a <m> b", "a m b", False),
        ("a <m> b", "a  b c", False),
        ("a <m> b", "b a", False),
        ("<<m>m>x", "<m>x", True),
        ("<<m>m>x", "x", False),
        ("<|m|>x", "x", True),
        ("<|m|>x", "<|x", False),
    ],
)
def test_only_markers_and_white_space_may_be_dropped(text, output, fair):
    class Told(Whole):
        def finish(self) -> Any:
            return [TextDelta(output)] if self.text == text else super().finish()

    class Suite(ToolParserSuite):
        parser = Told
        samples = (ToolSample(text, output, literal=True),)
        extra_markers = ("<m>", "m", "<|m|>") if "|" in text else ("<m>",)

    assert fails(Suite, "test_a_sample_loses_no_text") is not fair


def test_a_right_parser_passes_with_a_long_sample():
    long = ToolSample(f"{'word ' * 400}{CALL}", ("word " * 400).strip(), [("f", {"a": 1})])
    suite = tool_suite(HermesToolParser, long)
    for name in ("test_a_sample_gives_the_same_at_every_cut", "test_a_damaged_sample_keeps_the_rules"):
        assert not fails(suite, name)


def test_a_suite_without_samples_fails():
    class Suite(ToolParserSuite):
        parser = HermesToolParser
        samples = ()

    with pytest.raises(AssertionError, match="give samples"):
        Suite().test_the_samples_say_what_the_format_is()


@pytest.mark.parametrize("suite", [ToolParserSuite, ReasoningParserSuite])
@pytest.mark.parametrize(
    "name",
    ["test_a_sample_gives_what_it_should", "test_any_text_keeps_the_rules", "test_the_samples_say_what_the_format_is"],
)
def test_an_inherited_test_is_overridden_only_for_a_reason(suite, name):
    with pytest.raises(TypeError, match=name):
        type("TestHollow", (suite,), {name: None})
    type("TestReasoned", (suite,), {name: None, "waived": {name: "the format cannot do this"}})


def test_the_suites_say_that_they_need_hypothesis(monkeypatch):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] == "hypothesis":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="pip install hypothesis"):
        tool_suite(HermesToolParser)().test_any_text_keeps_the_rules()


def test_importing_the_suites_imports_neither_pytest_nor_hypothesis():
    code = "import sys, vllm_mlx_core.testing.parsers; print({'pytest', 'hypothesis', 'mlx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


START, ARGUMENTS, END = ToolCallStart(0, "a", "f"), ToolCallArguments(0, "{}"), ToolCallEnd(0)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [TextDelta("a"), START, ARGUMENTS, END, TextDelta("b"), ToolCallStart(1, "b", "f")],
        [START, ToolCallArguments(0, '{"a":'), TextDelta("cut off")],
        [START, ToolCallStart(1, "b", "g"), ToolCallArguments(1, "{}"), ToolCallEnd(1)],
        [ReasoningDelta("a"), TextDelta("b"), ReasoningDelta("c")],
    ],
)
def test_events_in_order_are_accepted(events):
    check_events(events)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([TextDelta("")], "empty delta"),
        ([ReasoningDelta("")], "empty delta"),
        ([ToolCallStart(1, "a", "f")], "0 was due"),
        ([ToolCallStart(0, "a", "")], "without a name"),
        ([ToolCallStart(0, "", "f")], "without an id"),
        ([START, ARGUMENTS, END, ToolCallStart(1, "a", "f")], "used before"),
        ([ARGUMENTS], "not open"),
        ([END], "not open"),
        ([START, ToolCallArguments(0, "")], "empty delta"),
        ([START, END], "not JSON"),
        ([START, ToolCallArguments(0, "{"), END], "not JSON"),
        ([START, ToolCallArguments(0, '{"a": NaN}'), END], "not JSON"),
        ([START, ToolCallArguments(0, "[]"), END], "not an object"),
        ([START, ARGUMENTS, END, END], "not open"),
        ([START, TextDelta("x"), ARGUMENTS], "not open"),
        ([START, ToolCallStart(1, "b", "g"), ARGUMENTS], "not open"),
        (["text"], "not an event"),
    ],
)
def test_events_out_of_order_are_refused(events, message):
    with pytest.raises(AssertionError, match=message):
        check_events(events)


def test_events_fold_to_what_a_client_that_does_not_stream_gets():
    events: list[Event] = [
        ReasoningDelta("r"),
        TextDelta("a"),
        START,
        ARGUMENTS,
        END,
        TextDelta("b"),
        ToolCallStart(1, "b", "g"),
    ]
    assert fold(events) == Folded("ab", "r", [("f", {})], [("g", "")])


def test_neighbouring_deltas_join():
    events: list[Event] = [
        TextDelta("a"),
        TextDelta("b"),
        START,
        ToolCallArguments(0, "{"),
        ToolCallArguments(0, "}"),
        END,
    ]
    assert join(events) == [TextDelta("ab"), ToolCallStart(0, "call 0", "f"), ARGUMENTS, END]
