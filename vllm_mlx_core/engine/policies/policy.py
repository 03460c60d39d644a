"""What a scheduling policy decides: one order, from which who is admitted, read and preempted follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import TypeAlias

from vllm_mlx_core.engine.sequence import Sequence

Rank: TypeAlias = tuple[float, ...]
"""Smaller goes first. It begins with the level and ends with the arrival, so that no two sequences have the same."""


class SchedulingPolicy(ABC):
    """The order of sequences. Engine thread only; one object per engine, asked and told by its scheduler.

    Waiting sequences are admitted and prompts are read by ascending ``rank``. A waiting sequence may take the place of
    a running one whose ``level`` is higher than its own, and of these the one of the highest rank goes first.
    """

    @abstractmethod
    def level(self, sequence: Sequence) -> int:
        """Return its class: lower goes first, and may take a place from higher. Never changes. Pure."""

    @abstractmethod
    def rank(self, sequence: Sequence) -> Rank:
        """Return where it stands among all. It may change from step to step. Does not mutate."""

    def lane(self, sequence: Sequence) -> Hashable:
        """Return what it shares with the sequences that only their arrival tells apart from it. Never changes. Pure."""
        return self.level(sequence)

    def queued(self, sequence: Sequence) -> None:  # noqa: B027 - most policies remember nothing
        """Hear that it waits from now on."""

    def dequeued(self, sequence: Sequence) -> None:  # noqa: B027
        """Hear that it does not wait any more: it was admitted, or aborted."""

    def started(self, sequence: Sequence) -> None:  # noqa: B027
        """Hear that it has a place, and what is known of its beginning: ``num_computed`` tokens are not read again."""

    def progressed(self, sequences: Iterable[Sequence]) -> None:  # noqa: B027
        """Hear that running sequences may have grown. Called for all of them once a step, and when one leaves."""
