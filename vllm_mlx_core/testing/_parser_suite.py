"""What the conformance suites of tool and reasoning parsers have in common."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from vllm_mlx_core.api import Chunk, Event, StreamParser, TextDelta

from ._cuts import cut, pieces, tokens
from ._lost_text import only_dropped
from ._suite import ConformanceSuite
from .events import Folded, check_events, fold, join

if TYPE_CHECKING:
    import pytest

CUT_WIDTHS = (1, 2, 3, 5, 7, 13)
DAMAGE = (" x", '"', "}", "\xa0")  # the last is white space to some and not to others
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


class Sample(Protocol):
    """What is known of every sample."""

    @property
    def text(self) -> str:
        """The raw completion."""
        ...

    @property
    def literal(self) -> bool:
        """Whether the text of markers is part of the output on purpose."""
        ...


S = TypeVar("S", bound=Sample)


class ParserSuite(ConformanceSuite, Generic[S]):
    """What every stream parser must do. The suites of the two kinds add what theirs must do."""

    samples: ClassVar[Sequence[Any]]
    extra_markers: ClassVar[Sequence[str]] = ()
    """Markers of the format besides the parser's ``special_tokens``: a parser may drop them, and must not leak them."""
    marker_pattern: ClassVar[str | None] = None
    """Regular expression without groups for markers that hold something which varies."""
    plain_texts: ClassVar[Sequence[str]] = PLAIN_TEXTS
    """Texts without any markup of the format, which must come out as they went in."""
    readings: int = 0
    """How many texts the running test has had read, each cut in one way; the pytest plugin adds them up."""

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
            assert self._run(sample, pieces(sample.text, width)) == whole, f"cut every {width} characters"

    def test_a_sample_gives_the_same_token_by_token(self, sample: S) -> None:
        """Cut as tokenizers cut, markers whole, a sample gives the same joined events as the whole."""
        parts = tokens(sample.text, self.markers())
        assert "".join(parts) == sample.text
        assert self._run(sample, parts) == self._run(sample, [sample.text]), f"cut into {parts}"

    def test_a_sample_gives_the_same_at_random_cuts(self, sample: S) -> None:
        """Cut anywhere, empty pieces included, a sample gives the same joined events as the whole."""
        whole = self._run(sample, [sample.text])

        def check(cuts: list[int]) -> None:
            assert self._run(sample, cut(sample.text, cuts)) == whole

        _for_any(check, 40, lambda st: [_places(st, len(sample.text))])

    def test_every_truncation_of_a_sample_keeps_the_rules(self, sample: S) -> None:
        """Cut off anywhere, a sample raises nothing, loses no text, and gives no call that it would not give whole."""
        calls = list(self.expected(sample).calls)
        for length in range(len(sample.text)):
            text = sample.text[:length]
            whole = self._run(sample, [text])
            assert self._run(sample, pieces(text, 1)) == whole, f"{text!r} cut into characters"
            self._check_truncated(sample, text, whole)
            complete = list(fold(whole).calls)
            assert complete == calls[: len(complete)], f"{text!r} is cut off, but gives {complete}"

    def test_a_sample_leaks_no_marker(self, sample: S) -> None:
        """No marker is left in content or reasoning, unless the sample says that it belongs there."""
        folded = fold(self._run(sample, pieces(sample.text, 1)))
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
        for piece in pieces(sample.text, 3):
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
                assert self._run(None, pieces(text, width)) == expected, f"{text!r} cut every {width} characters"

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
            assert self._run(sample, cut(text, [place for place in cuts if place < len(text)])) == whole
            self._check_nothing_lost(text, whole)

        _for_any(
            check,
            300,
            lambda st: [
                st.sampled_from([None, *self.samples]),
                st.lists(st.one_of(st.sampled_from(fragments), st.text(max_size=4)), max_size=24).map("".join),
                _places(st, 100),
            ],
        )

    def test_a_damaged_sample_keeps_the_rules(self, sample: S) -> None:
        """With something wrong put in anywhere, a sample gives the same at every cut, and loses no text."""
        step = len(sample.text) // MAX_DAMAGES + 1
        for position in range(0, len(sample.text) + 1, step):
            for wrong in DAMAGE:
                text = sample.text[:position] + wrong + sample.text[position:]
                whole = self._run(sample, [text])
                assert self._run(sample, pieces(text, 1)) == whole, f"{text!r} cut into characters"
                self._check_nothing_lost(text, whole)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _run(self, sample: S | None, pieces: Iterable[str]) -> list[Event]:
        self.readings += 1
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
            assert only_dropped(text, emitted, self._markers_in(text)), f"{text!r} lost text on the way to {emitted!r}"

    def _markers_in(self, text: str) -> Sequence[str]:
        """Return every marker, those that match the pattern in ``text`` included."""
        varying: list[str] = re.findall(self.marker_pattern, text) if self.marker_pattern is not None else []
        return (*self.markers(), *varying)

    def _check_truncated(self, sample: S, text: str, events: Sequence[Event]) -> None:
        """Check what ``text``, the beginning of a sample, gave."""
        self._check_nothing_lost(text, events)

    def _fragments(self) -> list[str]:
        """Return what garbage is made of: markers whole and cut, and the words of the samples."""
        fragments = {" ", "\n", "\xa0", '"', "\\", "{", "}"}
        for marker in self.markers():
            fragments |= {marker, marker[:-1], marker[1:], marker[: len(marker) // 2]}
        for sample in self.samples:
            fragments.update(re.findall(r"\w+|\s+|[^\w\s]+", sample.text)[:64])
            fragments.add(sample.text)
        return sorted(fragments - {""})


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


def _places(st: Any, length: int) -> Any:
    """Return what gives places to cut a text of this length, in order, some of them twice."""
    return st.lists(st.integers(0, length), max_size=12).map(sorted)
