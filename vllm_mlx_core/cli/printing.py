"""How an answer is written while it comes in."""

from __future__ import annotations

import os
from typing import TextIO

from vllm_mlx_core.api import ReasoningDelta, TextDelta

DIM, RESET = "\x1b[2m", "\x1b[0m"

# A model can be talked into writing escape sequences, and a terminal would obey them.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
del _CONTROLS[ord("\n")], _CONTROLS[ord("\t")]


class AnswerPrinter:
    """Writes one answer after the other to a stream.

    On a terminal the reasoning is shown too, dimmed unless NO_COLOR is set, and control characters are dropped.
    Elsewhere exactly the answer is written, so that it can be piped on.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._styled = self._terminal and not os.environ.get("NO_COLOR")
        self._reasoning = False
        self._column_0 = True

    def write(self, event: TextDelta | ReasoningDelta) -> None:
        """Write more of the answer, at once."""
        reasoning = isinstance(event, ReasoningDelta)
        if not event.text or (reasoning and not self._terminal):
            return
        if self._reasoning and not reasoning:
            self._end_line()
        self._reasoning = reasoning
        self._put(event.text, dim=reasoning)

    def note(self, text: str) -> None:
        """Write a remark that is not part of the answer on a line of its own; only a terminal shows it."""
        if self._terminal:
            self._end_line()
            self._put(f"[{text}]\n", dim=True)

    def end(self) -> None:
        """End the answer's last line. The next ``write`` begins another answer."""
        self._end_line()
        self._reasoning = False

    def _end_line(self) -> None:
        if not self._column_0:
            self._put("\n", dim=False)

    def _put(self, text: str, *, dim: bool) -> None:
        if self._terminal:
            text = text.translate(_CONTROLS)
        if not text:
            return
        self._column_0 = text.endswith("\n")
        self._out.write(f"{DIM}{text}{RESET}" if dim and self._styled else text)
        self._out.flush()
