"""An end to waiting: who has waited too long goes before better priorities, once.

It gets the next place that becomes free and keeps it for a turn of ``MAX_WAIT_S``, in which nobody preempts it; after
that it is like all others. Turns take at most a quarter of the places (but one), so that an overloaded server still
knows priorities. Idle work has all the time in the world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from .sequence import Sequence, Stage

MAX_WAIT_S = 30.0
"""Seconds after which a waiting sequence goes before all others, and for which it then keeps its place."""
SHARE = 4
"""One in so many places may be taken by turns."""


class Patience:
    """Since when sequences wait, and whose turn it is. Engine thread only. ``clock`` counts seconds and never back."""

    def __init__(self, clock: Callable[[], float], *, max_num_seqs: int) -> None:
        self._clock = clock
        self._max_turns = max(1, max_num_seqs // SHARE)
        self._waiting: deque[tuple[float, Sequence]] = deque()

    def wait(self, sequence: Sequence) -> None:
        """Note that a sequence waits from now on. Mutates it."""
        sequence.waiting_since = self._clock()
        if not sequence.is_idle:
            self._waiting.append((sequence.waiting_since, sequence))

    def next(self, running: Iterable[Sequence]) -> Sequence | None:
        """Return who has waited longest, if that is too long and a turn is free beside those of ``running``."""
        queue = self._waiting
        while queue and not (queue[0][1].stage is Stage.WAITING and queue[0][1].waiting_since == queue[0][0]):
            queue.popleft()
        if not queue or not self.is_over(queue[0][1]) or sum(map(self.has_turn, running)) >= self._max_turns:
            return None
        return queue[0][1]

    def is_over(self, sequence: Sequence) -> bool:
        """Return whether a sequence began to wait too long ago. Idle ones never did."""
        return not sequence.is_idle and self._clock() - sequence.waiting_since >= MAX_WAIT_S

    def give_turn(self, sequence: Sequence) -> None:
        """Let a sequence keep the place that it gets now. Mutates it."""
        sequence.turn_ends = self._clock() + MAX_WAIT_S

    def has_turn(self, sequence: Sequence) -> bool:
        """Return whether nobody may take its place yet."""
        return self._clock() < sequence.turn_ends
