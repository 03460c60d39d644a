"""Windows that keep the first tokens and the latest: mlx-lm's own cache alone, rows in a batch. Engine thread only.

A row's slots are a ring behind the tokens that are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from .rows import Arrays, Rows, contiguous

KEPT = 4
"""First tokens that a window keeps: attention comes to nothing without a few to rest on."""


class WindowRow(RotatingKVCache):  # type: ignore[misc]
    """mlx-lm's window of one sequence, which can become a row that keeps the first tokens.

    Unlike mlx-lm's it shows them to every position, also of a prompt that is read in chunks: so that what it computes
    does not depend on where a prompt is cut.
    """

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> Any:
        """Return what each of the next ``N`` positions may look at of what is kept and of themselves."""
        if N == 1 or (self.offset + N <= self.max_size and not window_size):
            return super().make_mask(N, window_size=window_size, return_array=return_array)
        queries = mx.arange(self.offset, self.offset + N)
        latest = self.offset - (self.max_size - 1 - self.keep)  # the first of those before the queries that are kept
        if latest <= self.keep:
            held = mx.arange(self.offset + N)
        else:
            held = mx.concatenate([mx.arange(self.keep), mx.arange(latest, self.offset + N)])
        queries = queries[:, None]
        mask = (held <= queries) & ((held < self.keep) | (held > queries - (self.max_size - self.keep)))
        return mask if not window_size else mask & (held > queries - window_size)

    @classmethod
    def merge(cls, caches: Sequence[WindowRow], place: float = 0.0) -> WindowRows:
        """Return the rows of several sequences in the layer at this place (``fill``). Does not mutate."""
        rows = WindowRows([c.offset for c in caches], caches[0].max_size, caches[0].keep)
        rows.fill([None if c.empty() else (c.in_slots(c.keys), c.in_slots(c.values)) for c in caches], place)
        return rows

    def in_slots(self, array: mx.array) -> Arrays:
        """Return what is kept of keys or values where a row keeps it. Lazy; does not mutate."""
        array = self._temporal_order(array)
        if self.offset <= self.max_size:
            return (array,)
        ring = self.max_size - self.keep
        latest = mx.roll(array[..., -ring:, :], (self.offset - self.keep) % ring, axis=2)
        return (mx.concatenate([array[..., : self.keep, :], latest], axis=2),)


class WindowRows(Rows):
    """Windows of several sequences that keep their first tokens. It reads several positions only until one is full."""

    def __init__(self, offsets: Sequence[int], max_size: int, keep: int) -> None:
        super().__init__(offsets)
        self.max_size = max_size
        self.keep = keep

    def stored(self, array: mx.array) -> Arrays:
        """Return new keys or values as they are kept."""
        if array.shape[2] > 1 and self.size() > self.max_size:
            raise ValueError("prompts that are longer than the window are read alone")
        return (array,)

    def slots_for(self, length: int) -> int:
        """Return how many slots a row of ``length`` tokens uses."""
        return min(length, self.max_size)

    def slots_of(self, positions: mx.array) -> mx.array:
        """Return in which slots positions are kept."""
        ring = self.keep + (positions - self.keep) % (self.max_size - self.keep)
        return mx.where(positions < self.keep, positions, ring)

    def positions_at(self, queries: mx.array, slots: mx.array) -> mx.array:
        """Return which position each slot holds when a position of ``queries`` is the latest; below 0: none."""
        latest = queries - (queries - slots) % (self.max_size - self.keep)
        return mx.where(slots < self.keep, slots, mx.where(latest < self.keep, -1, latest))

    def is_trimmable(self) -> bool:
        """Return whether the latest tokens could be dropped."""
        return self.size() < self.max_size

    def extract(self, row: int) -> WindowRow:
        """Return one row as a sequence's own. Does not mutate."""
        cache = WindowRow(self.max_size, self.keep)
        cache.offset, (keys,), (values,) = self.row(row)
        if cache.offset > self.max_size:
            turn = -((cache.offset - self.keep) % (self.max_size - self.keep))
            keys, values = (
                mx.concatenate([a[..., : self.keep, :], mx.roll(a[..., self.keep :, :], turn, axis=2)], axis=2)
                for a in (keys, values)
            )
        cache.keys, cache.values = contiguous((keys, values))
        cache._idx = keys.shape[2]
        return cache
