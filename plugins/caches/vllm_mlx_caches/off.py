"""The policy that keeps nothing: every prompt is computed in full."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import CacheMiss, CachePolicy, CacheSpec, CacheStats, KVState, Lease

from .spec_options import reject_unknown


class OffCache(CachePolicy):
    """``--cache off``. Takes no options."""

    keeps_nothing = True

    def __init__(self, spec: CacheSpec) -> None:
        reject_unknown("off", spec, ())
        super().__init__(spec)
        self._misses = 0
        self._last_miss: CacheMiss | None = None

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Find nothing. Mutates the counter of misses."""
        self._misses += 1
        self._last_miss = CacheMiss("the prefix cache is off", len(tokens))
        return None

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Decline."""

    def evict(self, nbytes: int) -> int:
        """Free nothing: there is nothing."""
        return 0

    def clear(self) -> None:
        """Do nothing."""

    def stats(self) -> CacheStats:
        """Return the counters. Does not mutate."""
        return CacheStats(misses=self._misses, last_miss=self._last_miss)
