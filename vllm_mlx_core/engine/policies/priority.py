"""Priority classes."""

from __future__ import annotations

from vllm_mlx_core.engine.sequence import Sequence

from .policy import Rank, SchedulingPolicy


class PriorityPolicy(SchedulingPolicy):
    """Lower ``priority`` first, then first come, first served."""

    def level(self, sequence: Sequence) -> int:
        """Return the priority."""
        return sequence.submit.priority

    def rank(self, sequence: Sequence) -> Rank:
        """Return priority and arrival."""
        return sequence.submit.priority, sequence.arrival
