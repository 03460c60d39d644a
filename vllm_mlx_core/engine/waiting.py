"""The sequences that wait for a place, in the order of a policy that may change its mind from step to step.

Sequences that only their arrival tells apart form a lane, and a policy is asked once a lane, not once a sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field

from .policies import SchedulingPolicy
from .sequence import Sequence


@dataclass(slots=True)
class _Lane:
    """Waiting sequences by id, and a heap of (arrival, id) that may also name some that do not wait any more."""

    members: dict[int, Sequence] = field(default_factory=dict)
    order: list[tuple[int, int]] = field(default_factory=list)

    def first(self) -> Sequence:
        """Return the member that arrived first. Mutates the heap only. There must be one."""
        while (found := self.members.get(self.order[0][1])) is None:
            heapq.heappop(self.order)
        return found


class WaitingQueue:
    """Waiting sequences. Engine thread only; ``push`` and ``discard`` are O(log n), most else O(lanes)."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._lanes: dict[Hashable, _Lane] = {}

    def push(self, sequence: Sequence) -> None:
        """Add a sequence; it stands where its arrival says. Mutates."""
        lane = self._lanes.setdefault(self._policy.lane(sequence), _Lane())
        lane.members[sequence.id] = sequence
        heapq.heappush(lane.order, (sequence.arrival, sequence.id))
        self._policy.queued(sequence)

    def discard(self, sequence: Sequence) -> None:
        """Take a sequence out if it is in here. Mutates."""
        name = self._policy.lane(sequence)
        lane = self._lanes.get(name)
        if lane is None or lane.members.pop(sequence.id, None) is None:
            return
        if not lane.members:
            del self._lanes[name]
        self._policy.dequeued(sequence)

    def first(self) -> Sequence | None:
        """Return who is next, or None if nobody waits."""
        return min((lane.first() for lane in self._lanes.values()), key=self._policy.rank, default=None)

    def passing(self, first: Sequence, most: int) -> list[Sequence]:
        """Return up to ``most`` that wait at the level of ``first`` and come after it, in order. O(waiting)."""
        level = self._policy.level(first)
        lanes = [lane for lane in self._lanes.values() if self._policy.level(lane.first()) == level]
        oldest = [heapq.nsmallest(most + 1, lane.members.values(), key=lambda s: s.arrival) for lane in lanes]
        ordered = sorted((s for lane in oldest for s in lane if s is not first), key=self._policy.rank)
        return ordered[:most]

    def num_below(self, level: int) -> int:
        """Return how many wait that may take a place from ``level``."""
        lanes = self._lanes.values()
        return sum(len(lane.members) for lane in lanes if self._policy.level(lane.first()) < level)
