"""Whether a completion is thinking just now, and how many tokens it has spent on it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from vllm_mlx_core.api import ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from vllm_mlx_core.api import ReasoningParser

log = logging.getLogger(__name__)


def thinking_in_prompt(parser: type[ReasoningParser], prompt: str) -> tuple[bool, bool]:
    """Return what the parser reads in a rendered prompt: whether thinking is open, and whether it is off.

    Never raises: a parser that does learns nothing.
    """
    try:
        is_open, is_off = parser.thinking_in_prompt(prompt)
    except Exception:
        log.exception("The parser %s failed on the prompt", parser.__name__)
        return False, False
    return is_open, is_off


class ThinkingCounter:
    """Follows a reasoning parser from outside, by its ``thinking`` and by what it emits.

    A token counts if thinking was open before or after it, so the markers themselves count, or if it gave thinking.
    """

    def __init__(self, parser: ReasoningParser) -> None:
        self.num_tokens = 0
        self.is_open = parser.thinking
        """Whether what comes next belongs to the thinking."""
        self._parser = parser
        self._before = parser.thinking
        self._ignored = False  # the parser leaves its ``thinking`` true in the middle of an answer

    def note(self, events: Iterable[TextDelta | ReasoningDelta]) -> None:
        """Take what the parser made of one more token. Mutates."""
        after = self._parser.thinking
        thought = answered = False
        for event in events:
            if isinstance(event, ReasoningDelta):
                thought = True
            else:
                answered = True
        if not after:
            self._ignored = False
        elif self._before and answered and not thought:
            self._ignored = True
        now_open = after and not self._ignored
        if thought or now_open or (self.is_open and not self._ignored):
            self.num_tokens += 1
        self.is_open, self._before = now_open, after
