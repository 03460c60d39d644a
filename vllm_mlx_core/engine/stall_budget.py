"""How much of a prompt one step may read while streams run, so that their next tokens are not late.

What a prompt's tokens cost is learned from steps that were measured: the time between two settled steps, less what a
decode step takes without a prompt. That is in proportion to the bytes that it reads, weights and states, so that it is
known as well when streams come and go while prompts are read all the time; it is the median of the latest such steps,
as it may have to do for long, and one slow step says nothing. Work is enqueued in order and never waited
for at once, so the time of a chunk shows when the decode step behind it settles, and that is where it is counted. The
cost is one rate, seconds a token, of which the latest chunks have the most say: it follows the growing context, and the
fixed part of a forward is in it for chunks of the size that it leads to. A chunk is at most twice the one before it, so
that one wrong measurement does no harm. No MLX, no text.

A short wait spares a stream little where its tokens are far apart anyway, and costs prompts much: small chunks read the
weights as often as large ones. So a wait may always be ``MIN_STEPS`` decode steps long. And while more prompts are read
than streams run, it may be longer in proportion, up to ``MAX_CROWDING`` times: else many wait so that few need not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

MIN_TOKENS = 8
"""A step may always read so many: prompts must get on, and smaller chunks cost more than they spare.

And no more, but for crowding, before anything was measured.
"""
MIN_STEPS = 2.5
MAX_CROWDING = 8.0
MEMORY = 0.5
"""What an observation of a chunk is still worth when the next one has been made."""
DECODE_STEPS = 9
"""Of so many decode steps without a prompt, the latest, the median is what they cost."""


class StallBudget:
    """Learns from measured steps how many tokens of prompts the next one may read. Engine thread only.

    ``target_s`` is the longest that a stream should wait for its next token, in seconds; 0 or less sets no limit.
    ``clock`` counts seconds. ``launched`` and ``settled`` are called in pairs, in the order of the steps, and at most
    one step is launched before the one before it has settled.
    """

    def __init__(self, target_s: float, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._target_s = target_s
        self._clock = clock
        self._read = 0
        self._ahead: deque[tuple[int | None, int]] = deque()
        self._has_joined = False
        self._settled_at: float | None = None
        self._bytes_s: deque[float] = deque(maxlen=DECODE_STEPS)
        self._seconds = 0.0
        self._tokens = 0.0
        self._latest = 0

    def limit(self, num_bytes: int, crowding: float = 1.0) -> int | None:
        """Return the most tokens that the next step may read if somebody decodes; None: as many as it likes.

        ``num_bytes`` is what the decode steps behind them will read, ``crowding`` how many prompts are read for each
        stream that runs. It is 0 until a decode step was measured, which takes two steps of the engine's life. Does not
        mutate.
        """
        if self._target_s <= 0:
            return None
        if not self._bytes_s:
            return 0
        crowding = _bounded(crowding)
        least = int(MIN_TOKENS * crowding)
        if not self._tokens:
            return least
        room_s = self._wait_s(num_bytes, crowding) - self._decode_s(num_bytes)
        most = 2 * max(self._latest, least)
        if self._seconds * most <= room_s * self._tokens:
            return most
        return max(MIN_TOKENS, int(room_s * self._tokens / self._seconds))

    def has_room(self, num_bytes: int, more_bytes: int, crowding: float = 1.0) -> bool:
        """Return whether a decode step that reads ``more_bytes`` fits behind what was read and one of ``num_bytes``.

        It does if nothing was read since the last launch. Does not mutate.
        """
        if self._target_s <= 0 or not (self._read and self._bytes_s and self._tokens):
            return True
        seconds = self._read * self._seconds / self._tokens + self._decode_s(num_bytes + more_bytes)
        return seconds <= self._wait_s(num_bytes, _bounded(crowding))

    def read(self, num_tokens: int) -> None:
        """Note that so many tokens of prompts were enqueued, padding included. Mutates."""
        self._read += num_tokens

    def joined(self) -> None:
        """Note that a batch gets rows before the next step: copying its states is no cost of reading. Mutates."""
        self._has_joined = True

    def launched(self, num_bytes: int) -> None:
        """Note that a decode step, which reads so many bytes, was enqueued behind what has been read. Mutates."""
        self._ahead.append((None if self._has_joined else self._read, num_bytes))
        self._latest = self._read or self._latest
        self._read, self._has_joined = 0, False

    def settled(self) -> None:
        """Note that the tokens of the oldest launched step are there, and learn from when. Mutates."""
        (num_tokens, num_bytes), now = self._ahead.popleft(), self._clock()
        if self._settled_at is not None and num_tokens is not None:
            self._learn(now - self._settled_at, num_tokens, num_bytes)
        self._settled_at = now

    def rested(self) -> None:
        """Note that a step had no tokens to wait for: how long it took says nothing. Mutates."""
        self._settled_at = None

    def _decode_s(self, num_bytes: int) -> float:
        """Return how long decode steps that read so many bytes take."""
        return median(self._bytes_s) * num_bytes

    def _wait_s(self, num_bytes: int, crowding: float) -> float:
        """Return how long a stream may wait whose decode steps read so many bytes."""
        return max(self._target_s, MIN_STEPS * self._decode_s(num_bytes)) * crowding

    def _learn(self, seconds: float, num_tokens: int, num_bytes: int) -> None:
        if not num_tokens:
            self._bytes_s.append(seconds / num_bytes)
        elif self._bytes_s:
            self._seconds = MEMORY * self._seconds + max(0.0, seconds - self._decode_s(num_bytes))
            self._tokens = MEMORY * self._tokens + num_tokens


def _bounded(crowding: float) -> float:
    return min(max(crowding, 1.0), MAX_CROWDING)
