"""Sequences that have arrived and whose beginnings are being fetched: they do not ask for a place yet.

Engine thread only, but for what a fetch does when it is done: it notes that, and wakes the engine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vllm_mlx_core.api import Fetch

from .sequence import Sequence

MAX_FETCH_S = 10.0
"""Longest that a sequence waits for its beginning; after that it is computed."""


@dataclass(slots=True)
class _Held:
    sequence: Sequence
    fetch: Fetch
    deadline: float


class Arrivals:
    """``wake`` is called from any thread when there is somebody to ``take``. ``clock`` counts seconds."""

    def __init__(self, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._wake = wake
        self._clock = clock
        self._held: dict[int, _Held] = {}  # by sequence, in order of arrival and so of deadlines
        self._done: deque[int] = deque()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._held)

    def hold(self, sequence: Sequence, fetch: Fetch) -> None:
        """Let a sequence wait for a fetch. Mutates."""
        self._held[sequence.id] = _Held(sequence, fetch, self._clock() + MAX_FETCH_S)
        fetch.future.add_done_callback(lambda _: self._note(sequence.id))

    def discard(self, sequence: Sequence) -> Fetch | None:
        """Forget a sequence; return the fetch that it was waiting for. Mutates."""
        held = self._held.pop(sequence.id, None)
        return None if held is None else held.fetch

    @property
    def has_news(self) -> bool:
        """Whether there may be somebody to take."""
        return bool(self._done) or self.timeout_s == 0

    @property
    def timeout_s(self) -> float | None:
        """In how many seconds somebody will have waited too long; None if nobody waits."""
        first = next(iter(self._held.values()), None)
        return None if first is None else max(0.0, first.deadline - self._clock())

    def take(self) -> list[tuple[Sequence, Fetch]]:
        """Return those whose fetch is done and those who have waited too long, which are forgotten. Mutates."""
        ready = []
        while self._done:
            if (held := self._held.pop(self._done.popleft(), None)) is not None:  # else it was discarded, or late
                ready.append(held)
        while self.timeout_s == 0:
            ready.append(self._held.pop(next(iter(self._held))))
        return [(held.sequence, held.fetch) for held in ready]

    def _note(self, sequence_id: int) -> None:
        self._done.append(sequence_id)
        self._wake()
