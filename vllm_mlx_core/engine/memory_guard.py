"""Keeps what the engine holds within the memory that it may use: who must wait, and when somebody must go. No MLX.

The operator grants a share of the device's memory (``--gpu-memory-utilization``). Before a sequence gets a place, the
need of all who would run then is compared with it: what MLX holds now, and by how much states will grow. Nobody can
know how long an output gets, so that a reservation is the tokens so far and ``RESERVED_OUTPUT`` more (fewer if fewer
may come), and moves on while the sequence decodes. If what runs has outgrown the memory nevertheless, it is the
scheduler's to take away a place.

Rows of a batch are as long as its longest, so that is what each of them is reckoned to take, but for those that are so
much shorter that they decode in a batch of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Protocol

from . import device
from .sequence import Sequence, Stage
from .step_cost import forward_bytes

RESERVED_OUTPUT = 256
"""Tokens of its output for which a sequence must have room when it gets a place."""
NEXT_TOKENS = 16
"""Tokens for which it must have room while it runs: far fewer, so that who has just got a place can go on."""
MOST_TOKENS = 1 << 31
LEAST_CHUNK = 64
"""Tokens that a step must have memory to read. More are read together where there is more: it is faster."""


class _Cost(Protocol):
    def state(self, num_tokens: int) -> int: ...

    def scratch(self, chunk: int, num_tokens: int) -> int: ...


class _Cache(Protocol):
    @property
    def evictable_bytes(self) -> int: ...

    def evict(self, nbytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What may be used, in bytes, and how to reckon what is needed. ``max_chunk`` is the most that a step reads."""

    budget: int
    weights: int
    cost: _Cost
    max_chunk: int
    batched: bool

    @property
    def max_sequence_tokens(self) -> int:
        """Most tokens for which a sequence finds room when it is the only one; 0 if there is none for any."""
        return _most(lambda n: self.weights + self._alone(n) <= self.budget, 0, MOST_TOKENS)

    @property
    def least_chunk(self) -> int:
        """Fewest tokens that a step is held to, however little memory there is."""
        return min(self.max_chunk, LEAST_CHUNK)

    def _alone(self, num_tokens: int) -> int:
        return self.cost.state(num_tokens) + self.cost.scratch(min(self.least_chunk, num_tokens), num_tokens)

    def states(self, lengths: Rows[int]) -> int:
        """Return what the states of sequences with so many tokens take when they decode together."""
        if not self.batched:
            return sum(map(self.cost.state, lengths))
        total = longest = 0
        for own in sorted(map(self.cost.state, lengths), reverse=True):
            if longest - own > forward_bytes(self.weights):  # its padding would cost more than a batch of its own
                longest = 0
            longest = longest or own
            total += longest
        return total

    def held(self, running: Rows[Sequence]) -> int:
        """Return what their states take now."""
        decoding = [s.num_computed for s in running if s.stage is Stage.DECODE]
        reading = [s.num_computed for s in running if s.stage is not Stage.DECODE and s.num_computed]
        return self.states(decoding) + sum(map(self.cost.state, reading))

    def reserved(self, running: Rows[Sequence], ahead: int) -> int:
        """Return what they will take ``ahead`` tokens further on, and what reading their prompts takes meanwhile."""
        lengths = [reserved_tokens(s.num_tokens, s.submit.max_tokens - len(s.output), ahead) for s in running]
        scratch = max(
            (self.cost.scratch(min(self.least_chunk, s.num_to_prefill), s.num_tokens) for s in unread(running)),
            default=0,
        )
        return self.states(lengths) + scratch

    def chunk_within(self, nbytes: int, num_tokens: int) -> int:
        """Return how many tokens a step may read for so many bytes beside the states, the last of ``num_tokens``."""
        return _most(lambda n: self.cost.scratch(n, num_tokens) <= nbytes, self.least_chunk, self.max_chunk)


def unread(running: Rows[Sequence]) -> list[Sequence]:
    """Return those whose prompts are not read to their end."""
    return [s for s in running if s.stage is not Stage.DECODE and s.num_to_prefill]


def _most(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number up to ``high`` that fits, ``low`` if none does. If one fits, so do smaller ones."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def reserved_tokens(num_tokens: int, max_more: int, ahead: int = RESERVED_OUTPUT) -> int:
    """Return for how many tokens a sequence of ``num_tokens`` needs room if at most ``max_more`` will follow."""
    return num_tokens + min(max_more, ahead)


class MemoryGuard:
    """A plan, and what there is to give up for it. Engine thread only; nothing is evicted unless that is enough."""

    def __init__(self, plan: MemoryPlan, cache: _Cache) -> None:
        self._plan = plan
        self._cache = cache

    def may_start(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        """Return whether a sequence finds room beside those that run. Evicts what it needs to from the cache."""
        return self._makes_room([*running, sequence], RESERVED_OUTPUT)

    def may_go_on(self, running: Iterable[Sequence]) -> bool:
        """Return whether those that run have room for their next tokens. Evicts what it needs to from the cache."""
        held = device.memory()
        if held.active + held.buffers > self._plan.budget:
            device.free_buffers()
        return self._makes_room(list(running), NEXT_TOKENS)

    def left(self, running: Rows[Sequence]) -> int:
        """Return how many bytes those that run leave of the budget, with room for their next tokens."""
        return max(0, -self._missing(running, NEXT_TOKENS))

    def chunk(self, running: Rows[Sequence]) -> int:
        """Return how many tokens of prompts the next step may read, so that it finds memory.

        Small chunks take less for a moment, so a prompt is read in small ones rather than refused. They are slower,
        so the cache makes room for a large one if it can.
        """
        plan, waiting = self._plan, unread(running)
        if not waiting:
            return plan.max_chunk
        longest = max(s.num_tokens for s in waiting)
        least = plan.cost.scratch(min(plan.least_chunk, max(s.num_to_prefill for s in waiting)), longest)
        most = min(plan.max_chunk, sum(s.num_to_prefill for s in waiting))
        wanted = plan.cost.scratch(most, longest) - least
        left = -self._missing(running, NEXT_TOKENS, wanted=wanted)
        if 0 < wanted - left <= self._cache.evictable_bytes:
            self._cache.evict(wanted - left)
            device.free_buffers()
            left = -self._missing(running, NEXT_TOKENS, wanted=wanted)
        return plan.chunk_within(least + left, longest)

    def _makes_room(self, running: Rows[Sequence], ahead: int) -> bool:
        missing = self._missing(running, ahead)
        if missing <= 0:
            return True
        if missing > self._cache.evictable_bytes:
            return False
        self._cache.evict(missing)
        device.free_buffers()
        return self._missing(running, ahead) <= 0

    def _missing(self, running: Rows[Sequence], ahead: int, *, wanted: int = 0) -> int:
        """Return how many bytes more they need than may be used; below 0, how many are left.

        No more than ``wanted`` of what is left are of interest.

        What MLX holds includes the cache, other models of the process, and what no plan foresees; what is enqueued but
        not yet computed shows only in the plan. A step that runs holds more than what stays of it: if that seems too
        much, it is waited for.
        """
        plan = self._plan
        reserved = plan.reserved(running, ahead)
        allowed = plan.budget - max(0, reserved - plan.held(running))
        if device.memory().active > allowed - wanted:
            device.finish()
        return max(device.memory().active - allowed, plan.weights + reserved - plan.budget)
