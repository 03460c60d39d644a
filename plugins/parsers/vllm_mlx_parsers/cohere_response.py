"""What Cohere's models write around and into an answer, and the answer without it."""

from __future__ import annotations

import re

from .scan import SPACE

RESPONSE_MARKERS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")

_SOURCES = r"[\d :,\[\]]{0,512}"
_SOURCE = r"\d+(?::\[[\d, ]*\])?"
_CITATION = rf"</?co(?=(?::{_SOURCES})?>)(?:: *{_SOURCE}(?:[, ]+{_SOURCE})* *)?>"
_MARKUP = re.compile(rf"(?P<marker>{'|'.join(map(re.escape, RESPONSE_MARKERS))})|{_CITATION}")
_BEGINNINGS = frozenset(marker[:length] for marker in RESPONSE_MARKERS for length in range(1, len(marker)))
_CITATION_BEGINNING = re.compile(rf"</?(?:c(?:o(?::{_SOURCES})?)?)?")
_plain_text = re.compile(f"[^<]*[^<{SPACE}]").fullmatch


class ResponseText:
    """Takes an answer in pieces and gives it without Cohere's markup, the same wherever it was cut.

    Markers around the answer are dropped together with the white space next to them, citation tags alone.
    """

    def __init__(self) -> None:
        self._held = ""  # the beginning of markup, perhaps
        self._space: list[str] = []  # white space that a marker may follow
        self._marked = False  # nothing has come since a marker

    def feed(self, text: str) -> str:
        """Take more of the answer and return what is now certain, perhaps nothing. Mutates."""
        if self.settled and _plain_text(text):
            return text
        text = self._held + text
        stop = _certain(text)
        self._held = text[stop:]
        return self._clean(text[:stop])

    @property
    def settled(self) -> bool:
        """Whether text without ``<`` that does not end in white space would come out as it is, and change nothing."""
        return not (self._held or self._space or self._marked)

    def finish(self) -> str:
        """Return what was held back: the answer has ended, or something else stands here. Mutates."""
        rest = self._clean(self._held)
        self._held = ""
        if not self._marked:
            rest = "".join((rest, *self._space))
        self._space.clear()
        return rest

    def _clean(self, text: str) -> str:
        pieces: list[str] = []
        pos = 0
        for match in _MARKUP.finditer(text):
            self._add(text[pos : match.start()], pieces)
            pos = match.end()
            if match["marker"]:
                self._space.clear()
                self._marked = True
        self._add(text[pos:], pieces)
        return "".join(pieces)

    def _add(self, text: str, pieces: list[str]) -> None:
        if self._marked:
            text = text.lstrip(SPACE)
            self._marked = not text
        solid = text.rstrip(SPACE)
        if solid:
            pieces += (*self._space, solid)
            self._space.clear()
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])


def _certain(text: str) -> int:
    """Return where a tail begins that may become markup; ``len(text)`` if there is none."""
    start = text.rfind("<")
    if start < 0:
        return len(text)
    tail = text[start:]
    return start if tail in _BEGINNINGS or _CITATION_BEGINNING.fullmatch(tail) else len(text)
