"""Where the reading of a prompt pauses so that its state there can be kept. Pure.

A recurrent layer or a full sliding window cannot go back, so a later prompt resumes only where a state was kept. The
ends of messages are where prompts part: another conversation has the same system prompt, an edited message the same
messages before it, and an agent drops its latest turns. But each state kept costs memory and each pause a forward pass,
so few are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MIN_GAP = 64
"""Fewest tokens between two states that are kept: as many are read again in the time that a pause costs."""
NUM_FIRST = 2
"""Kept of the beginning: a system prompt, which templates may write as two messages."""
NUM_LATEST = 16
"""Kept of the end."""


def stops_at(boundaries: Sequence[int], *, start: int, end: int) -> set[int]:
    """Return at which ``boundaries`` (rising) to pause while the tokens after ``start`` are read, as far as ``end``."""
    useful = [boundary for boundary in boundaries if start + MIN_GAP <= boundary < end]
    first = _apart(useful, NUM_FIRST)
    after = first[-1] + MIN_GAP if first else 0
    latest = _apart((boundary for boundary in reversed(useful) if boundary >= after), NUM_LATEST)
    return {*first, *latest}


def _apart(boundaries: Iterable[int], count: int) -> list[int]:
    """Return at most ``count`` of them, each far enough from the one before it."""
    chosen: list[int] = []
    for boundary in boundaries:
        if len(chosen) == count:
            break
        if not chosen or abs(boundary - chosen[-1]) >= MIN_GAP:
            chosen.append(boundary)
    return chosen
