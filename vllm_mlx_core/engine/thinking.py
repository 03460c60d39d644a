"""Counting the tokens a completion spends on thinking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from vllm_mlx_core.api import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from vllm_mlx_core.api import ReasoningParser


class ThinkingCounter:
    """Follows a reasoning parser from outside, by its markers and by what it emits.

    A token counts if thinking was open before or after it, so the markers themselves count.
    """

    def __init__(self, parser: ReasoningParser) -> None:
        self.num_tokens = 0
        self._start, self._end = parser.start, parser.end
        self._keep = max(len(self._start), len(self._end)) - 1
        self._inside = parser.context.thinking_open
        self._answered = parser.context.thinking_off and not self._inside
        self._tail = ""

    def note(self, text: str, events: Iterable[TextDelta | ReasoningDelta]) -> None:
        """Take one token: its text, and what the parser made of it. Mutates."""
        before = self._inside
        kinds = {type(event) for event in events}
        tail = self._tail + text
        if not self._inside and not self._answered and self._start and self._start in tail:
            self._inside = True
            tail = tail.partition(self._start)[2]
        closed = bool(self._end) and self._inside and self._end in tail
        if closed:
            tail = tail.partition(self._end)[2]
        self._tail = tail[-self._keep :] if self._keep > 0 else ""
        if ReasoningDelta in kinds:
            self._inside = True
        if TextDelta in kinds:
            self._answered = True
        if before or self._inside:
            self.num_tokens += 1
        if closed or TextDelta in kinds:
            self._inside = False
