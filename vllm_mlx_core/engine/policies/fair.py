"""Fair shares: within a priority, users get tokens in proportion to their weights while they compete.

Each user has a counter of the tokens served to it, divided by its weight, and who has had least goes first (Sheng et
al., "Fairness in Serving Large Language Models"). A prompt counts when it is admitted, so that places that become free
together are shared as well, and without what the prefix cache had of it; output counts as it is made. Nothing counts
twice, so a preemption costs its victim no share.

Who had nothing waiting is lifted to the least of those who have when something of it arrives: time that one did not
use gives no claim on the time of others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from vllm_mlx_core.engine.sequence import Sequence

from .policy import Rank, SchedulingPolicy


class FairPolicy(SchedulingPolicy):
    """Lower ``priority`` first, then whose user has had least, then first come, first served.

    ``weights`` are by user, above 0; a user without one weighs 1. It never preempts within one priority.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._served: dict[str, float] = {}
        self._num_waiting: dict[str, int] = {}
        self._last_dequeued: str | None = None

    def served(self, user: str) -> float:
        """Return a user's counter: tokens divided by weight, and what it was lifted by. Does not mutate."""
        return self._served.get(user, 0.0)

    def level(self, sequence: Sequence) -> int:
        """Return the priority."""
        return sequence.submit.priority

    def rank(self, sequence: Sequence) -> Rank:
        """Return priority, the user's counter and arrival."""
        return sequence.submit.priority, self.served(sequence.submit.user), sequence.arrival

    def lane(self, sequence: Sequence) -> Hashable:
        """Return priority and user."""
        return sequence.submit.priority, sequence.submit.user

    def queued(self, sequence: Sequence) -> None:
        """Lift its user's counter if nothing else of this user waits. Mutates."""
        user = sequence.submit.user
        if user not in self._num_waiting:
            if self._num_waiting:
                least = min(map(self.served, self._num_waiting))
            else:
                least = self.served(self._last_dequeued) if self._last_dequeued is not None else 0.0
            self._served[user] = max(self.served(user), least)
        self._num_waiting[user] = self._num_waiting.get(user, 0) + 1

    def dequeued(self, sequence: Sequence) -> None:
        """Note that it waits no more. Mutates."""
        user = self._last_dequeued = sequence.submit.user
        self._num_waiting[user] -= 1
        if not self._num_waiting[user]:
            del self._num_waiting[user]

    def started(self, sequence: Sequence) -> None:
        """Count what is to be read of its prompt. Mutates."""
        sequence.num_accounted = max(sequence.num_accounted, sequence.num_computed)
        self.progressed((sequence,))

    def progressed(self, sequences: Iterable[Sequence]) -> None:
        """Count the tokens that were added since the last time. Mutates."""
        for sequence in sequences:
            if (more := sequence.num_tokens - sequence.num_accounted) > 0:
                user = sequence.submit.user
                self._served[user] = self.served(user) + more / self._weights.get(user, 1.0)
                sequence.num_accounted = sequence.num_tokens
