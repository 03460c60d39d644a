"""Plain keys and values of running sequences: mlx-lm's own cache alone, rows in a batch. Engine thread only."""

from __future__ import annotations

from collections.abc import Sequence

from mlx_lm.models.cache import KVCache

from .rows import Rows, contiguous, cut


class KVRows(Rows):
    """Keys and values of several sequences."""

    @classmethod
    def of(cls, caches: Sequence[KVCache], place: float = 0.0) -> KVRows:
        """Return the rows of several sequences in the layer at this place (``fill``). Does not mutate."""
        rows = cls([c.offset for c in caches])
        held = [None if c.empty() else (cut((c.keys,), c.offset), cut((c.values,), c.offset)) for c in caches]
        rows.fill(held, place)
        return rows

    def extract(self, row: int) -> KVCache:
        """Return one row as a sequence's own. Does not mutate."""
        cache = KVCache()
        cache.offset, keys, values = self.row(row)
        (cache.keys,), (cache.values,) = contiguous(keys), contiguous(values)
        return cache
