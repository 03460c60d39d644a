"""Conformance suites for tool and reasoning parsers.

Subclass one in a test module and say what your format looks like; pytest does the rest::

    class TestAcme(ToolParserSuite):
        parser = AcmeToolParser
        samples = [ToolSample('CALL f {"a": 1}', calls=[("f", {"a": 1})])]

Every sample is cut in many ways and must give the same events each time. The suites need pytest and hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from vllm_mlx_core.api import (
    Chunk,
    Event,
    ParserContext,
    ReasoningDelta,
    ReasoningParser,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)

from ._lost_text import only_dropped
from ._parser_suite import ParserSuite
from ._suite import ConformanceSuite
from .events import Folded, fold


@dataclass(frozen=True, slots=True)
class ToolSample:
    """A raw answer and what a tool parser must make of it."""

    text: str
    content: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    """Name and decoded arguments of every complete call."""
    tools: Sequence[Tool] | None = None
    """Tools the client declared; None: the suite's."""
    literal: bool = False
    """``content`` holds the text of markers on purpose."""


@dataclass(frozen=True, slots=True)
class ReasoningSample:
    """A raw completion and what a reasoning parser must make of it."""

    text: str
    reasoning: str = ""
    content: str = ""
    thinking_open: bool = False
    thinking_off: bool = False
    literal: bool = False
    """``reasoning`` or ``content`` holds the text of markers on purpose."""


class ToolParserSuite(ParserSuite[ToolSample], ConformanceSuite):
    """What every tool parser must do. Set ``parser`` and ``samples``."""

    parser: ClassVar[type[ToolParser]]
    samples: ClassVar[Sequence[ToolSample]]
    tools: ClassVar[Sequence[Tool]] = ()
    """Tools that the client declared, for samples that do not say."""
    bare: ClassVar[bool] = False
    """The format's calls have no marker of their own, so that one that is cut off is text."""
    whole_calls: ClassVar[bool] = False
    """The parser gives a call in one piece, once it is complete, so that its arguments do not stream."""

    def context(self, sample: ToolSample | None) -> ParserContext:
        """Return the context for a sample (None: plain text). Override it if the parser needs more, a tokenizer say."""
        return ParserContext(tools=self.tools if sample is None or sample.tools is None else sample.tools)

    def make_parser(self, sample: ToolSample | None = None) -> ToolParser:
        """Return a new parser for a sample."""
        return self.parser(self.context(sample))

    def expected(self, sample: ToolSample) -> Folded:
        """Return what ``sample`` must fold to."""
        return Folded(content=sample.content, calls=sample.calls)

    def emitted_text(self, events: Sequence[Event]) -> str | None:
        """Return the content, if there is nothing else."""
        return fold(events).content if all(isinstance(event, TextDelta) for event in events) else None

    def _check_nothing_lost(self, text: str, events: Sequence[Event]) -> None:
        """All text is there, but that of a call which the end cuts off after a marker that calls begin with."""
        emitted = self.emitted_text(events)
        if emitted is not None:
            begun = (text[:i] for marker in self._openings for i in _positions(marker, text))
            markers = self._markers_in(text)
            is_explained = any(only_dropped(part, emitted, markers) for part in (text, *begun))
            assert is_explained, f"{text!r} lost text on the way to {emitted!r}"

    @cached_property
    def _openings(self) -> Sequence[str]:
        """The markers that a call may begin with: all but those that samples hold only behind the name of a call."""
        before: set[str] = set()
        behind: set[str] = set()
        for sample in self.samples:
            parser = self.make_parser(sample)
            for position, char in enumerate(sample.text, 1):
                if any(isinstance(event, ToolCallStart) for event in parser.feed(Chunk(char))):
                    before.update(marker for marker in self.markers() if marker in sample.text[:position])
                    behind.update(marker for marker in self.markers() if marker in sample.text[position:])
                    break
        return [marker for marker in self.markers() if marker in before or marker not in behind]

    def _check_truncated(self, sample: ToolSample, text: str, events: Sequence[Event]) -> None:
        """The content so far is there; of a call that was cut off nothing is, but the beginning of its first marker."""
        if self.bare or sample.literal:
            self._check_nothing_lost(text, events)
            return
        content = fold(events).content
        pairs = enumerate(zip(content, sample.content, strict=False))
        same = next((i for i, (one, other) in pairs if one != other), min(len(content), len(sample.content)))
        rest = content[same:].lstrip()
        assert not rest or any(marker.startswith(rest) for marker in self.markers()), f"{text!r} leaks {rest!r}"
        assert not rest or rest not in self.markers(), f"{text!r} leaks {rest!r}"

    def test_the_samples_say_what_the_format_is(self) -> None:
        """There are samples, and some of them hold calls."""
        assert any(sample.calls for sample in self.samples), "give samples with calls"

    def test_calls_are_not_held_back(self) -> None:
        """In some sample the name of a call is passed on before its end, and so is a part of its arguments.

        Not where the suite says that calls come whole; then none does.
        """
        assert self.whole_calls != self._some_call_streams(), (
            "calls stream: set whole_calls to False" if self.whole_calls else "every call comes in one piece"
        )

    def _some_call_streams(self) -> bool:
        for sample in self.samples:
            parser, open_, streamed = self.make_parser(sample), False, False
            for char in sample.text:
                kinds = {type(event) for event in parser.feed(Chunk(char))}
                streamed |= open_ and ToolCallArguments in kinds and ToolCallEnd not in kinds
                open_ = (open_ or ToolCallStart in kinds) and ToolCallEnd not in kinds
            if streamed:
                return True
        return False

    def _check(self, events: Sequence[Event]) -> None:
        assert not any(isinstance(event, ReasoningDelta) for event in events), "a tool parser gives no reasoning"
        super()._check(events)


class ReasoningParserSuite(ParserSuite[ReasoningSample], ConformanceSuite):
    """What every reasoning parser must do. Set ``parser`` and ``samples``."""

    parser: ClassVar[type[ReasoningParser]]
    samples: ClassVar[Sequence[ReasoningSample]]

    def context(self, sample: ReasoningSample | None) -> ParserContext:
        """Return the context for a sample (None: plain text). Override it if the parser needs more, a tokenizer say."""
        if sample is None:
            return ParserContext()
        return ParserContext(thinking_open=sample.thinking_open, thinking_off=sample.thinking_off)

    def make_parser(self, sample: ReasoningSample | None = None) -> ReasoningParser:
        """Return a new parser for a sample."""
        return self.parser(self.context(sample))

    def expected(self, sample: ReasoningSample) -> Folded:
        """Return what ``sample`` must fold to."""
        return Folded(content=sample.content, reasoning=sample.reasoning)

    def emitted_text(self, events: Sequence[Event]) -> str:
        """Return reasoning and content in the order they came."""
        return "".join(event.text for event in events if isinstance(event, TextDelta | ReasoningDelta))

    def test_the_samples_say_what_the_format_is(self) -> None:
        """There are samples, and some of them hold reasoning."""
        assert any(sample.reasoning for sample in self.samples), "give samples with reasoning"

    def test_the_parser_knows_how_a_prompt_opens_the_thinking(self) -> None:
        """``start`` and ``end`` are set, unless the parser reads prompts in its own way; no prompt makes it raise."""
        own = any("thinking_in_prompt" in vars(each) for each in self.parser.__mro__ if each is not ReasoningParser)
        assert own or (self.parser.start and self.parser.end)
        for text in (*self.plain_texts, *(sample.text for sample in self.samples)):
            assert len(self.parser.thinking_in_prompt(text)) == 2
        if not own:
            assert self.parser.thinking_in_prompt(f"hi{self.parser.start}\n") == (True, False)
            assert self.parser.thinking_in_prompt(f"hi{self.parser.start}\n\n{self.parser.end}\n") == (False, True)

    def test_thinking_is_true_exactly_inside_the_thinking(self, sample: ReasoningSample) -> None:
        """``thinking`` begins as the context says, is true after thinking and false after text of the answer."""
        parser = self.make_parser(sample)
        assert parser.thinking == parser.context.thinking_open, "before the first chunk"
        for position, char in enumerate(sample.text, 1):
            events = list(parser.feed(Chunk(char)))
            read = sample.text[:position]
            if events and not read.rstrip().endswith(self.markers()):  # held text may come with what ends it
                assert parser.thinking == isinstance(events[-1], ReasoningDelta), f"after {read!r}"
        if sample.content and not sample.reasoning:
            assert not parser.thinking, "at the end"

    def test_thinking_is_the_same_at_every_cut(self, sample: ReasoningSample) -> None:
        """``thinking`` depends on what was read, and not on how it was cut."""
        one_by_one = self.make_parser(sample)
        for position, char in enumerate(sample.text, 1):
            list(one_by_one.feed(Chunk(char)))
            whole = self.make_parser(sample)
            list(whole.feed(Chunk(sample.text[:position])))
            assert whole.thinking == one_by_one.thinking, f"after {sample.text[:position]!r}"

    def test_answer_without_thinking_comes_out_unchanged(self) -> None:
        """With thinking switched off in the prompt, plain text is the answer."""
        for text in self.plain_texts:
            parser = self.parser(ParserContext(thinking_off=True))
            assert fold(parser.parse(text)) == Folded(content=text, calls=[], unfinished=[])

    def _check(self, events: Sequence[Event]) -> None:
        wrong = [event for event in events if not isinstance(event, TextDelta | ReasoningDelta)]
        assert not wrong, "a reasoning parser gives text and reasoning only"
        super()._check(events)


def _positions(marker: str, text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(re.escape(marker), text))
