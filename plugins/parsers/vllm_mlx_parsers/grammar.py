"""Parsers written as grammars: generators that read a stream as if all of it were there.

A grammar asks for what comes next (``yield from self.until(…)``, ``self.expect(…)``) and is suspended wherever the
stream has been cut; so one straight-line description serves every cut, and the whole text is the stream fed once.
Reading is linear in the length of the stream: what was consumed is dropped, and what is not consumed is at most the
beginning of a marker.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from vllm_mlx_core.api import Chunk, ParserContext, StreamParser

from .scan import Markers, skip_space

E = TypeVar("E")
T = TypeVar("T")

Reading: TypeAlias = Generator[None, None, T]
"""A part of a grammar that gives a T. It yields where it needs more text; nothing is sent in or out."""


class Malformed(Exception):
    """The text is not what the grammar says."""


class Unfinished(Malformed):
    """The stream ended in the middle of something."""


class PushScanner(Protocol):
    """Something that reads text piece by piece until it is ``done`` or ``broken``."""

    done: bool
    broken: bool

    def feed(self, text: str, pos: int = 0) -> int:
        """Read on from ``pos`` and return the position reached. Mutates."""
        ...


class GrammarParser(StreamParser[E]):
    """A parser whose ``grammar`` reads the completion. Subclass it and write that generator.

    The grammar's own state: ``text`` is what is at hand, ``pos`` the next character to read, ``ended`` whether there
    will be no more; ``events`` takes what is certain. A grammar yields only while not ``ended``.
    """

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self.text = ""
        self.pos = 0
        self.ended = False
        self.events: list[E] = []
        self._run = self.grammar()
        self._plain: Callable[[str], Any] | None = None
        self._wrap: Callable[[str], E] | None = None
        self._raw: list[str] | None = None
        self._raw_pos = 0

    @abstractmethod
    def grammar(self) -> Reading[None]:
        """Read the whole completion, to its end."""

    def feed(self, chunk: Chunk) -> Iterable[E]:
        """Take the next chunk and return the events that are now certain."""
        text = chunk.text
        plain = self._plain
        if plain is not None and plain(text):
            if self._raw is not None:
                self._raw.append(text)
            return (self._wrap(text),)  # type: ignore[misc]  # set together with _plain
        if not text:
            return ()
        self._plain = None
        pos = self.pos
        if self._raw is not None:
            self._raw.append(self.text[self._raw_pos : pos])
            self._raw_pos = 0
        self.text = self.text[pos:] + text if pos < len(self.text) else text
        self.pos = 0
        next(self._run, None)
        events, self.events = self.events, []
        return events

    def finish(self) -> Iterable[E]:
        """Return the events for whatever was held back."""
        self.ended = True
        next(self._run, None)
        events, self.events = self.events, []
        return events

    # -- what was read, as it was written -------------------------------------------------------------------------

    def record(self, opening: str = "") -> None:
        """Keep what is read from here on, as if ``opening`` stood in front of it. Mutates."""
        self._raw = [opening]
        self._raw_pos = self.pos

    def recorded(self) -> str:
        """Return what was read since ``record``, and stop keeping it. Mutates."""
        raw = "".join(self._raw or ()) + self.text[self._raw_pos : self.pos]
        self._raw = None
        return raw

    # -- reading --------------------------------------------------------------------------------------------------

    def pass_on(self, plain: Callable[[str], Any], wrap: Callable[[str], E]) -> None:
        """Until something else is read, turn chunks for which ``plain`` is true into events at once. Mutates.

        A shortcut for the many chunks without any structure; call it directly before a yield, with nothing unread.
        """
        if self.pos == len(self.text):
            self._plain, self._wrap = plain, wrap
            if self._raw is not None:
                self._raw.append(self.text[self._raw_pos :])
                self._raw_pos = self.pos

    def peek(self) -> Reading[str]:
        """Return the next character without reading it; "" at the end of the stream."""
        while self.pos == len(self.text):
            if self.ended:
                return ""
            yield
        return self.text[self.pos]

    def spaces(self) -> Reading[str]:
        """Read white space, perhaps none, and return it."""
        pieces: list[str] = []
        while True:
            end = skip_space(self.text, self.pos)
            pieces.append(self.text[self.pos : end])
            self.pos = end
            if end < len(self.text) or self.ended:
                return "".join(pieces)
            yield

    def take(self, marker: str) -> Reading[bool]:
        """Read ``marker`` if it stands here; return whether it did. Raises Unfinished if the stream ends within it."""
        while True:
            rest = self.text[self.pos : self.pos + len(marker)]
            if rest == marker:
                self.pos += len(marker)
                return True
            if not marker.startswith(rest):
                return False
            if self.ended:
                if rest:
                    raise Unfinished
                return False
            yield

    def expect(self, marker: str) -> Reading[None]:
        """Read ``marker``. Raises Malformed if something else stands here, Unfinished if the stream ends before."""
        if not (yield from self.take(marker)):
            raise Unfinished if self.pos == len(self.text) else Malformed

    def one_of(self, markers: Markers) -> Reading[str]:
        """Read the one of ``markers`` that stands here and return it; "" if none does.

        Raises Unfinished if the stream ends within a marker.
        """
        while True:
            marker = markers.at(self.text, self.pos, ended=self.ended)
            if marker is None and self.ended:
                raise Unfinished
            if marker is not None and (marker or self.ended or self.pos < len(self.text)):
                self.pos += len(marker)
                return marker
            yield

    def ahead(self, markers: Markers) -> Reading[str]:
        """Return the one of ``markers`` that stands here, without reading it; "" if none does. Raises Unfinished."""
        marker = yield from self.one_of(markers)
        self.pos -= len(marker)
        return marker

    def run(self, characters: re.Pattern[str]) -> Reading[str]:
        """Read as much as ``characters`` matches, and return it. The pattern must match every part of its matches."""
        pieces: list[str] = []
        while True:
            match = characters.match(self.text, self.pos)
            if match is not None:
                pieces.append(match.group())
                self.pos = match.end()
            if self.pos < len(self.text) or self.ended:
                return "".join(pieces)
            yield

    def until(self, markers: Markers, sink: Callable[[str], None]) -> Reading[str]:
        """Hand everything before the first of ``markers`` to ``sink``, read the marker and return it.

        Returns "" at the end of the stream. ``sink`` gets pieces as they come, none of them empty.
        """
        while True:
            found = markers.find(self.text, self.pos, ended=self.ended)
            if found.stop > self.pos:
                sink(self.text[self.pos : found.stop])
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            yield

    def before(self, markers: Markers, limit: int = 1024) -> Reading[tuple[str, str]]:
        """Read up to the first of ``markers``; return what stands before it, and the marker.

        For short things such as names: raises Malformed after ``limit`` characters, Unfinished if the stream ends.
        """
        pieces: list[str] = []
        while True:
            found = markers.find(self.text, self.pos, ended=self.ended)
            pieces.append(self.text[self.pos : found.stop])
            self.pos = found.next
            if sum(map(len, pieces)) > limit:
                raise Malformed
            if found.marker:
                return "".join(pieces), found.marker
            if self.ended:
                raise Unfinished
            yield

    def scan(self, scanner: PushScanner) -> Reading[None]:
        """Feed ``scanner`` until it is done. Raises Malformed if it breaks, Unfinished if the stream ends before."""
        while True:
            self.pos = scanner.feed(self.text, self.pos)
            if scanner.done:
                return
            if scanner.broken:
                raise Malformed
            if self.ended:
                raise Unfinished
            yield
