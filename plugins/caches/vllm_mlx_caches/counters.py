"""What a policy counts: how often it helped, how much, and why not the last time."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_mlx_core.api import CacheMiss, CacheStats


@dataclass(slots=True)
class Counters:
    """Counters since the policy was made."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    saved_tokens: int = 0
    last_miss: CacheMiss | None = None

    def hit(self, num_tokens: int) -> None:
        """Count a match of so many tokens. Mutates."""
        self.hits += 1
        self.saved_tokens += num_tokens

    def miss(self, why: CacheMiss) -> None:
        """Count a look-up that found nothing. Mutates."""
        self.misses += 1
        self.last_miss = why

    def stats(self, *, entries: int, nbytes: int, pinned_bytes: int) -> CacheStats:
        """Return the counters, and what is held now. Does not mutate."""
        return CacheStats(
            entries=entries,
            nbytes=nbytes,
            pinned_bytes=pinned_bytes,
            hits=self.hits,
            misses=self.misses,
            evictions=self.evictions,
            saved_tokens=self.saved_tokens,
            last_miss=self.last_miss,
        )
