"""Conformance suites for tool and reasoning parsers.

Subclass one in a test module and say what your format looks like; pytest does the rest::

    class TestAcme(ToolParserSuite):
        parser = AcmeToolParser
        samples = [ToolSample('CALL f {"a": 1}', calls=[("f", {"a": 1})])]

Every sample is cut in many ways and must give the same events each time. The suites need pytest and hypothesis.
"""

from __future__ import annotations

import itertools
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from vllm_mlx_core.api import (
    Chunk,
    Event,
    ParserContext,
    ReasoningDelta,
    ReasoningParser,
    StreamParser,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)

from ._suite import ConformanceSuite
from .events import Folded, check_events, fold, join

if TYPE_CHECKING:
    import pytest

CUT_WIDTHS = (1, 2, 3, 5, 7, 13)
DAMAGE = (" x", '"', "}")
MAX_DAMAGES = 200
"""Most places where one sample is damaged: the longest samples are not damaged at every character."""
PLAIN_TEXTS = (
    "",
    "Hello.",
    "  two spaces before, a newline after\n",
    "a < b and b > c",
    "# Title\n\n- one\n- two\n\n\n\ttail \t",
    '```json\n{"name": "my-app", "version": "1.0"}\n```',
    "日本語 👩‍👩‍👧 é",
)


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


S = TypeVar("S", ToolSample, ReasoningSample)


class _ParserSuite(ConformanceSuite, Generic[S]):
    """What every stream parser must do. The two suites below add what their kind must do."""

    samples: ClassVar[Sequence[Any]]
    extra_markers: ClassVar[Sequence[str]] = ()
    """Markers of the format besides the parser's ``special_tokens``: a parser may drop them, and must not leak them."""
    marker_pattern: ClassVar[str | None] = None
    """Regular expression without groups for markers that hold something which varies."""
    plain_texts: ClassVar[Sequence[str]] = PLAIN_TEXTS
    """Texts without any markup of the format, which must come out as they went in."""

    @abstractmethod
    def make_parser(self, sample: S | None = None) -> StreamParser[Any]:
        """Return a new parser for a sample; None stands for text without markup."""

    @abstractmethod
    def expected(self, sample: S) -> Folded:
        """Return what ``sample`` must fold to."""

    @abstractmethod
    def emitted_text(self, events: Sequence[Event]) -> str | None:
        """Return all text of the events, from which nothing may be missing; None if some of it is in calls."""

    def markers(self) -> tuple[str, ...]:
        """Return every marker of the format."""
        return (*type(self.make_parser()).special_tokens, *self.extra_markers)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test that takes a sample once for each."""
        if "sample" in metafunc.fixturenames:
            samples = list(getattr(metafunc.cls, "samples", ()))
            metafunc.parametrize(
                "sample", samples, ids=[f"{i}-{sample.text[:24]!r}" for i, sample in enumerate(samples)]
            )

    # -- samples --------------------------------------------------------------------------------------------------

    def test_a_sample_gives_what_it_should(self, sample: S) -> None:
        """The whole text at once: content, reasoning and calls are as expected."""
        events = list(self.make_parser(sample).parse(sample.text))
        self._check(events)
        folded, expected = fold(events), self.expected(sample)
        assert folded.content == expected.content
        assert folded.reasoning == expected.reasoning
        assert list(folded.calls) == list(expected.calls)

    def test_a_sample_gives_the_same_at_every_cut(self, sample: S) -> None:
        """Cut into pieces of each width, a sample gives the same joined events as the whole."""
        whole = self._run(sample, [sample.text])
        for width in CUT_WIDTHS:
            assert self._run(sample, _pieces(sample.text, width)) == whole, f"cut every {width} characters"

    def test_a_sample_gives_the_same_token_by_token(self, sample: S) -> None:
        """Cut as tokenizers cut, markers whole, a sample gives the same joined events as the whole."""
        tokens = self._tokens(sample.text)
        assert "".join(tokens) == sample.text
        assert self._run(sample, tokens) == self._run(sample, [sample.text]), f"cut into {tokens}"

    def test_a_sample_gives_the_same_at_random_cuts(self, sample: S) -> None:
        """Cut anywhere, empty pieces included, a sample gives the same joined events as the whole."""
        whole = self._run(sample, [sample.text])

        def check(cuts: list[int]) -> None:
            assert self._run(sample, _cut(sample.text, cuts)) == whole

        _for_any(check, 40, lambda st: [_cuts(st, len(sample.text))])

    def test_every_truncation_of_a_sample_keeps_the_rules(self, sample: S) -> None:
        """Cut off anywhere, a sample raises nothing, loses no text, and gives no call that it would not give whole."""
        calls = list(self.expected(sample).calls)
        for length in range(len(sample.text)):
            text = sample.text[:length]
            whole = self._run(sample, [text])
            assert self._run(sample, _pieces(text, 1)) == whole, f"{text!r} cut into characters"
            self._check_truncated(sample, text, whole)
            complete = list(fold(whole).calls)
            assert complete == calls[: len(complete)], f"{text!r} is cut off, but gives {complete}"

    def test_a_sample_leaks_no_marker(self, sample: S) -> None:
        """No marker is left in content or reasoning, unless the sample says that it belongs there."""
        folded = fold(self._run(sample, _pieces(sample.text, 1)))
        for marker in self.markers():
            assert sample.literal or marker not in folded.content
            assert sample.literal or marker not in folded.reasoning

    def test_a_sample_loses_no_text(self, sample: S) -> None:
        """All that is missing from the output is markers and white space."""
        self._check_nothing_lost(sample.text, self._run(sample, [sample.text]))

    def test_two_completions_at_once_do_not_mix(self, sample: S) -> None:
        """Parsers of one class share no state."""
        parsers = [self.make_parser(sample), self.make_parser(sample)]
        outputs: list[list[Event]] = [[], []]
        for piece in _pieces(sample.text, 3):
            for parser, output in zip(parsers, outputs, strict=True):
                output += parser.feed(Chunk(piece))
        for parser, output in zip(parsers, outputs, strict=True):
            output += parser.finish()
        assert [join(output) for output in outputs] == [self._run(sample, [sample.text])] * 2

    # -- text that is no sample -----------------------------------------------------------------------------------

    def test_plain_text_comes_out_unchanged(self) -> None:
        """Text without markup is content to the last character, even if it ends in the beginning of a marker."""
        beginnings: set[str] = {marker[:length] for marker in self.markers() for length in range(1, len(marker))}
        for text in (*self.plain_texts, *(f"text {beginning}" for beginning in sorted(beginnings))):
            expected: list[Event] = [TextDelta(text)] if text else []
            for width in (*CUT_WIDTHS, len(text) or 1):
                assert self._run(None, _pieces(text, width)) == expected, f"{text!r} cut every {width} characters"

    def test_plain_text_is_not_held_back(self) -> None:
        """Text that cannot be markup streams."""
        parser = self.make_parser()
        events: list[Event] = []
        for word in ["It", " is", " a", " sunny", " day", " in", " Paris", " today"]:
            events += parser.feed(Chunk(word))
        assert fold(events).content.startswith("It is a sunny day")

    def test_any_text_keeps_the_rules(self) -> None:
        """Text that nobody should write raises nothing, gives the same at every cut, and loses no text."""
        fragments = self._fragments()

        def check(sample: S | None, text: str, cuts: list[int]) -> None:
            whole = self._run(sample, [text])
            assert self._run(sample, _cut(text, [cut for cut in cuts if cut < len(text)])) == whole
            self._check_nothing_lost(text, whole)

        _for_any(
            check,
            300,
            lambda st: [
                st.sampled_from([None, *self.samples]),
                st.lists(st.one_of(st.sampled_from(fragments), st.text(max_size=4)), max_size=24).map("".join),
                _cuts(st, 100),
            ],
        )

    def test_a_damaged_sample_keeps_the_rules(self, sample: S) -> None:
        """With something wrong put in anywhere, a sample gives the same at every cut, and loses no text."""
        step = len(sample.text) // MAX_DAMAGES + 1
        for position in range(0, len(sample.text) + 1, step):
            for wrong in DAMAGE:
                text = sample.text[:position] + wrong + sample.text[position:]
                whole = self._run(sample, [text])
                assert self._run(sample, _pieces(text, 1)) == whole, f"{text!r} cut into characters"
                self._check_nothing_lost(text, whole)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _tokens(self, text: str) -> list[str]:
        """Cut a text about where tokenizers do: markers, words with the space before them, runs of punctuation."""
        tokens: list[str] = []
        for i, part in enumerate(re.split(f"({_any_of(self.markers())})", text)):
            tokens += [part] if i % 2 else re.findall(r" ?\w+| ?[^\w\s]+|\s+", part)
        return tokens

    def _run(self, sample: S | None, pieces: Iterable[str]) -> list[Event]:
        parser = self.make_parser(sample)
        events: list[Event] = []
        for piece in pieces:
            events += parser.feed(Chunk(piece))
        events += parser.finish()
        self._check(events)
        return join(events)

    def _check(self, events: Sequence[Event]) -> None:
        check_events(events)

    def _check_nothing_lost(self, text: str, events: Sequence[Event]) -> None:
        emitted = self.emitted_text(events)
        if emitted is not None:
            assert _only_dropped(text, emitted, self._markers_in(text)), f"{text!r} lost text on the way to {emitted!r}"

    def _markers_in(self, text: str) -> Sequence[str]:
        """Return every marker, those that match the pattern in ``text`` included."""
        varying: list[str] = re.findall(self.marker_pattern, text) if self.marker_pattern is not None else []
        return (*self.markers(), *varying)

    def _check_truncated(self, sample: S, text: str, events: Sequence[Event]) -> None:
        """Check what ``text``, the beginning of a sample, gave."""
        self._check_nothing_lost(text, events)

    def _fragments(self) -> list[str]:
        """Return what garbage is made of: markers whole and cut, and the words of the samples."""
        fragments = {" ", "\n", '"', "\\", "{", "}"}
        for marker in self.markers():
            fragments |= {marker, marker[:-1], marker[1:], marker[: len(marker) // 2]}
        for sample in self.samples:
            fragments.update(re.findall(r"\w+|\s+|[^\w\s]+", sample.text)[:64])
            fragments.add(sample.text)
        return sorted(fragments - {""})


class ToolParserSuite(_ParserSuite[ToolSample], ConformanceSuite):
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
            is_explained = any(_only_dropped(part, emitted, markers) for part in (text, *begun))
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


class ReasoningParserSuite(_ParserSuite[ReasoningSample], ConformanceSuite):
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


def _for_any(check: Callable[..., None], examples: int, strategies: Callable[[Any], Sequence[Any]]) -> None:
    """Run ``check`` with many values of ``strategies``, which is called with ``hypothesis.strategies``."""
    try:
        import hypothesis
        import hypothesis.strategies
    except ImportError as error:
        raise ImportError("The conformance suites need hypothesis: pip install hypothesis") from error
    given: Any = hypothesis.given  # typed for literal strategies only
    hypothesis.settings(max_examples=examples, deadline=None, database=None)(
        given(*strategies(hypothesis.strategies))(check)
    )()


def _pieces(text: str, width: int) -> Iterator[str]:
    return (text[start : start + width] for start in range(0, len(text), width))


def _cuts(st: Any, length: int) -> Any:
    return st.lists(st.integers(0, length), max_size=12).map(sorted)


def _cut(text: str, cuts: Sequence[int]) -> list[str]:
    bounds = [0, *cuts, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def _positions(marker: str, text: str) -> Iterator[int]:
    return (match.start() for match in re.finditer(re.escape(marker), text))


def _any_of(markers: Iterable[str]) -> str:
    """Return a regular expression for the longest of ``markers`` at a place; for none, one that fits nothing."""
    return "|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)) or "(?!)"


def _only_dropped(text: str, output: str, markers: Sequence[str]) -> bool:
    """Return whether ``output`` is ``text`` without some of its markers and white space."""
    droppable = re.compile(rf"{_any_of(markers)}|\s+")
    rest = iter(text)
    if droppable.sub("", text) == droppable.sub("", output) and all(char in rest for char in output):
        return True  # all but markers and white space is there, and nothing came from elsewhere
    return _is_explained(text, output, markers)


def _is_explained(text: str, output: str, markers: Sequence[str]) -> bool:
    """Return the same exactly, for markers that overlap; takes longer."""
    # reached[i]: how much of the output can be explained by the first i characters of the text
    reached: dict[int, set[int]] = {0: {0}}
    for i in range(len(text)):
        explained = reached.pop(i, None)
        if explained is None:
            if not reached:
                return False
            continue
        further = {j + 1 for j in explained if output.startswith(text[i], j)}
        if text[i].isspace():
            further |= explained
        if further:
            reached.setdefault(i + 1, set()).update(further)
        for marker in markers:
            if text.startswith(marker, i):
                reached.setdefault(i + len(marker), set()).update(explained)
    return len(output) in reached.get(len(text), ())
