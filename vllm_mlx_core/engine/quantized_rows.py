"""Quantised keys and values of running sequences: mlx-lm's own cache alone, rows in a batch. Engine thread only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

from .rows import Arrays, Rows, contiguous, cut


class QuantizedRow(QuantizedKVCache):  # type: ignore[misc]
    """mlx-lm's quantised cache of one sequence, which can become a row."""

    def size(self) -> int:
        """Return the number of tokens read."""
        return int(self.offset)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(array.nbytes for array in (*(self.keys or ()), *(self.values or ())))

    @classmethod
    def merge(cls, caches: Sequence[QuantizedRow], place: float = 0.0) -> QuantizedRows:
        """Return the rows of several sequences in the layer at this place (``fill``). Does not mutate."""
        rows = QuantizedRows([c.offset for c in caches], caches[0].group_size, caches[0].bits)
        rows.fill([None if c.empty() else (cut(c.keys, c.offset), cut(c.values, c.offset)) for c in caches], place)
        return rows


class QuantizedRows(Rows):
    """Quantised keys and values of several sequences."""

    def __init__(self, offsets: Sequence[int], group_size: int, bits: int) -> None:
        super().__init__(offsets)
        self.group_size = group_size
        self.bits = bits

    def stored(self, array: mx.array) -> Arrays:
        """Return new keys or values as they are kept."""
        return tuple(mx.quantize(array, group_size=self.group_size, bits=self.bits))

    def fetched(self, arrays: Arrays) -> Any:
        """Return keys or values as attention wants them."""
        return arrays

    def extract(self, row: int) -> QuantizedRow:
        """Return one row as a sequence's own. Does not mutate."""
        cache = QuantizedRow(self.group_size, self.bits)
        cache.offset, keys, values = self.row(row)
        cache.keys, cache.values = contiguous(keys), contiguous(values)
        return cache
