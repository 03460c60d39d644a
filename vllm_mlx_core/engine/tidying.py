"""Giving memory back to the system when nobody has wanted anything for a moment. Engine thread only.

What the C library's heap has freed but keeps is found by looking through all of it, which is not for a busy server; and
one that is idle should hold no more than it needs. MLX's own free buffers stay, as the next request wants them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from . import device

AFTER_S = 1.0
"""Seconds without anything to do."""


class Tidying:
    """Gives memory back once in each time of rest. ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: float | None = None
        self._is_done = False

    def worked(self) -> None:
        """Note that there is something to do. Mutates."""
        self._due, self._is_done = None, False

    def rested(self) -> None:
        """Note that there is nothing to do, and give memory back if that has been so for long enough. Mutates."""
        if self._due is None and not self._is_done:
            self._due = self._clock() + AFTER_S
        if self.timeout_s == 0:
            device.free_heap()
            self._due, self._is_done = None, True

    @property
    def timeout_s(self) -> float | None:
        """In how many seconds ``rested`` is to be called again; None: there is no need."""
        return None if self._due is None else max(0.0, self._due - self._clock())
