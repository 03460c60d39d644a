"""Where Markdown's code begins and ends in a text that comes in pieces: what stands in it only quotes markers."""

from __future__ import annotations

_FENCE = 3
"""How many backticks open a code fence."""
_BEFORE_FENCE = " \t\r>"
"""What may stand before the backticks that close a fence, on their line."""


class CodeQuotes:
    """Follows a text. Hand every run of backticks to ``ticks``, and all text to ``read``.

    Three backticks open a fence, wherever they stand. As many, or more, close it on the same line, and after that only
    where a line begins: code may hold them, too. Fewer open a code span, which ends with as many and with its line.
    """

    __slots__ = ("_begins_line", "_on_line_of_fence", "fence", "span")

    def __init__(self) -> None:
        self.fence = 0
        """How many backticks opened the code fence that the text is in."""
        self.span = 0
        """How many opened a code span on this line."""
        self._begins_line = True
        self._on_line_of_fence = False

    @property
    def settled(self) -> bool:
        """Whether text without backticks changes nothing, unless it ends in white space or ``>``."""
        return not (self.span or self._begins_line or self._on_line_of_fence)

    def read(self, text: str) -> None:
        """Take text; backticks in it are taken as any other character. Mutates."""
        _, newline, line = text.rpartition("\n")
        if newline:
            self.span = 0
            self._begins_line, self._on_line_of_fence = True, False
        if self._begins_line and line.strip(_BEFORE_FENCE):
            self._begins_line = False

    def ticks(self, count: int) -> bool:
        """Take so many backticks, of which the text is still to be read; return whether a code span opens. Mutates."""
        if self.fence:
            if count >= self.fence and (self._begins_line or self._on_line_of_fence):
                self.leave()
        elif count >= _FENCE:
            self.fence, self.span, self._on_line_of_fence = count, 0, True
        elif self.span:
            self.span = 0 if count == self.span else self.span
        else:
            self.span = count
            return True
        return False

    def leave(self) -> None:
        """Close the fence. Mutates."""
        self.fence, self._on_line_of_fence = 0, False
