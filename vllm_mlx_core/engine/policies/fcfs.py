"""First come, first served."""

from __future__ import annotations

from vllm_mlx_core.engine.sequence import Sequence

from .policy import Rank, SchedulingPolicy


class FirstComePolicy(SchedulingPolicy):
    """By arrival alone, whatever priority a client gives itself; only idle work waits for all others."""

    def level(self, sequence: Sequence) -> int:
        """Return 0, or 1 for idle work."""
        return int(sequence.is_idle)

    def rank(self, sequence: Sequence) -> Rank:
        """Return level and arrival."""
        return self.level(sequence), sequence.arrival
