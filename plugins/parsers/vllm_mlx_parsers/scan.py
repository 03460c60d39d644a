"""Finding markers in a stream of text.

A parser keeps the few characters that may be the beginning of a marker and puts them in front of the next chunk. As
fewer characters are kept than the longest marker has, a stream is read in time linear in its length.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SPACE = " \t\r\n"
"""What counts as white space around calls and reasoning, and between the tokens of JSON."""

_SPACE_RUN = re.compile(r"[ \t\r\n]*")


class Found(NamedTuple):
    """Where a search ended: the text before ``stop`` is certain.

    If ``marker`` is set it begins at ``stop`` and ``next`` is just after it. If it is empty, what follows ``stop`` may
    become a marker and ``next`` equals ``stop``.
    """

    stop: int
    marker: str
    next: int


class Markers:
    """A set of markers to look for. Immutable: make it once and share it.

    The leftmost marker wins, the longest of those that begin at one place.
    """

    def __init__(self, *markers: str) -> None:
        if not markers or not all(markers):
            raise ValueError("Markers must be given and not be empty.")
        longest_first = sorted(set(markers), key=len, reverse=True)
        self.markers = tuple(longest_first)
        self._search = re.compile("|".join(map(re.escape, longest_first))).search
        self.first = "".join(sorted({marker[0] for marker in markers}))
        """The characters that markers begin with."""
        self._search_first = re.compile(f"[{re.escape(self.first)}]").search
        self._prefixes = frozenset(marker[:length] for marker in markers for length in range(1, len(marker)))
        self._reach = len(longest_first[0]) - 1

    def find(self, text: str, pos: int = 0, *, ended: bool = False) -> Found:
        """Find the first marker at or after ``pos``, or the tail that may become one (none if the text has ended)."""
        match = self._search(text, pos)
        tail = len(text) if ended else self.tail(text, pos)
        if match is not None and match.start() < tail:
            return Found(match.start(), match.group(), match.end())
        return Found(tail, "", tail)

    def tail(self, text: str, pos: int = 0) -> int:
        """Return where the longest tail begins that is an incomplete marker; ``len(text)`` if there is none."""
        match = self._search_first(text, max(pos, len(text) - self._reach))
        while match is not None:
            start = match.start()
            if text[start:] in self._prefixes:
                return start
            match = self._search_first(text, start + 1)
        return len(text)

    def at(self, text: str, pos: int, *, ended: bool = False) -> str | None:
        """Return the marker that begins exactly at ``pos``, "" if there is none, None if that is not certain.

        It is not certain while what stands at ``pos`` is only the beginning of a marker, perhaps of a longer one. If
        the text has ended, the whole marker that stands there counts.
        """
        is_beginning = len(text) - pos <= self._reach and text[pos:] in self._prefixes
        if is_beginning and not ended:
            return None
        marker = next((marker for marker in self.markers if text.startswith(marker, pos)), "")
        return None if is_beginning and not marker else marker


def skip_space(text: str, pos: int = 0) -> int:
    """Return the position of the first character at or after ``pos`` that is not white space."""
    match = _SPACE_RUN.match(text, pos)
    return match.end() if match else pos
