"""Which sequences run, and what each step reads: places, preemption and the token budget. No MLX, no text.

Who goes first is the policy's to say (``policies``), but for those who have waited too long (``patience``). Decoding
sequences take one token each of the step's budget; what is left goes to prefill in the policy's order, so a long prompt
never holds up running streams for more than one chunk, and a chunk never exceeds the budget. Short prompts of the same
level pass a long one, as that costs it little. Prompts that are scored have a smaller budget of their own within it and
are read alone; those that find it spent wait for the next step, and others pass them.

If every place is taken, who waits may take that of a running sequence of a worse level. A prompt that is being read
goes back to the queue at once, with what is read of it; a decoding sequence is marked, and goes back (``pause``) as
soon as its token in flight is read. So that states do not pile up in the queue, it holds those of at most
``max_num_seqs`` prompts of people: further ones keep their places.

Who finds a place but no memory waits for those who run, and lets those of worse levels make room. Others of its level
pass it if there is memory for them, until it has waited too long.

Idle prompts are read only in steps in which nobody is waited for, and in small chunks then, as who comes next waits for
the step that runs. When somebody comes they go back to the queue with what is read of them: a place is for who uses it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from .patience import Patience
from .policies import PriorityPolicy, SchedulingPolicy
from .policies.policy import Rank
from .sequence import Sequence, Stage
from .waiting import WaitingQueue

PrefillMode: TypeAlias = Literal["ragged", "equal", "solo"]
"""Which prompts one forward may read together: of any lengths, of one length, or none."""


MAX_IDLE_TOKENS = 256
"""Most that one step reads of idle prompts."""
MAX_PADDING = 1.5
"""Most that padding may make of a group's tokens, as a multiple."""
MAX_STATE_PADDING = 1.1
"""Most that padding may make of a group's longest state, as a multiple."""

SHORT_SHARE = 0.25
"""Share of a step's tokens that short prompts get before a long one that came earlier."""
MIN_SHORT_TOKENS = 64
"""The least that they get of it together: what a chat's first question has."""
MAX_PASSING = 8
"""Most who are asked each step whether they have memory enough when the first in the queue does not."""


class Chunk(NamedTuple):
    """The next ``length`` tokens of one sequence's prompt."""

    sequence: Sequence
    length: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step's prefill work: each group is one forward pass. A group of several finishes all its prompts."""

    groups: list[list[Chunk]]
    ready: list[Sequence]
    """Sequences that need no prefill (one-token prompts, full cache hits) and can decode at once."""


class Scheduler:
    """Waiting and running sequences. Engine thread only.

    ``may_start`` says whether there is memory for a sequence beside those that run; None: there always is. ``clock``
    counts seconds; it decides who has waited too long and nothing else.
    """

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        prefill_mode: PrefillMode,
        max_scored_tokens: int,
        policy: SchedulingPolicy | None = None,
        may_start: Callable[[Sequence, Iterable[Sequence]], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_scored_tokens = max_scored_tokens
        self.prefill_mode = prefill_mode
        self._policy = policy or PriorityPolicy()
        self._patience = Patience(clock, max_num_seqs=max_num_seqs)
        self._may_start = may_start or (lambda sequence, running: True)
        self._waiting = WaitingQueue(self._policy)
        self._arrivals = count()
        self._running: dict[int, Sequence] = {}
        self._known: dict[int, Sequence] = {}

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Mutates."""
        self.announce(sequence)
        self.enqueue(sequence)

    def announce(self, sequence: Sequence) -> None:
        """Give a sequence its place in the queue, which it does not take before it is enqueued. Mutates."""
        sequence.arrival = next(self._arrivals)
        self._known[sequence.id] = sequence

    def enqueue(self, sequence: Sequence) -> None:
        """Let an announced sequence wait for a place among those that run. Mutates."""
        self._wait(sequence)

    def requeue(self, sequence: Sequence) -> None:
        """Put a running sequence whose state was lost back where it was in the queue. Mutates."""
        self._stop(sequence)
        sequence.restart()
        self._wait(sequence)

    def pause(self, sequence: Sequence) -> None:
        """Put a running sequence that gives up its place back where it was in the queue. Mutates.

        No token of it is in flight, and it is in no batch any more.
        """
        self._stop(sequence)
        sequence.pause()
        self._wait(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence and let go of its state. Mutates; safe for one that is not known."""
        self._stop(sequence)
        self._waiting.discard(sequence)
        self._known.pop(sequence.id, None)
        sequence.finish()

    def _wait(self, sequence: Sequence) -> None:
        self._waiting.push(sequence)
        self._patience.wait(sequence)

    def _stop(self, sequence: Sequence) -> None:
        if self._running.pop(sequence.id, None) is not None:
            self._policy.progressed((sequence,))

    def get(self, sequence_id: int) -> Sequence | None:
        """Return the unfinished sequence with this id, or None."""
        return self._known.get(sequence_id)

    def __iter__(self) -> Iterator[Sequence]:
        """Iterate over every unfinished sequence (a copy: finishing while iterating is fine)."""
        return iter(list(self._known.values()))

    @property
    def running(self) -> list[Sequence]:
        """Those with a place, in the order in which they got it (a new list)."""
        return list(self._running.values())

    @property
    def num_running(self) -> int:
        """Sequences that prefill or decode."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that wait for a place, or are announced."""
        return len(self._known) - len(self._running)

    def admit(self) -> Iterator[Sequence]:
        """Give waiting sequences a place while there are places, and yield them. Mutates.

        Each may be given what is known of its beginning before the next one is asked for. One that had a place before
        comes with its tokens, and with the state that it had if it was being read. Decoding sequences that are to make
        room are marked ``is_leaving``; their places are free once they are paused.
        """
        self._policy.progressed(self._running.values())
        first = self._waiting.first()
        if first is None:
            return
        if self._serves_somebody or not first.is_idle:
            self._pause_idle()
        self._preempt()
        while len(self._running) < self.max_num_seqs and (sequence := self._next()) is not None:
            if sequence.is_idle and self._serves_somebody:
                return
            self._waiting.discard(sequence)
            sequence.stage = Stage.PREFILL
            self._running[sequence.id] = sequence
            yield sequence
            self._policy.started(sequence)

    def _next(self) -> Sequence | None:
        """Return who gets the next place; None if nobody waits or finds memory."""
        overdue = self._patience.next(self._running.values())
        first = overdue or self._waiting.first()
        if first is None:
            return None
        if not self._may_start(first, self._running.values()):
            self._yield_to(first)
            if overdue is not None:  # nobody passes it any more
                return None
            others = self._waiting.passing(first, MAX_PASSING)
            return next((s for s in others if self._may_start(s, self._running.values())), None)
        if overdue is not None:
            self._patience.give_turn(overdue)
        return first

    @property
    def _serves_somebody(self) -> bool:
        return any(not sequence.is_idle for sequence in self._running.values())

    @property
    def crowding(self) -> float:
        """How many prompts are read, or wait for what others read, for each stream that runs: infinity without any."""
        prompts = sum(s.stage is Stage.PREFILL and not s.is_idle for s in self._running.values())
        streams = sum(map(_is_stream, self._running.values()))
        return prompts / streams if streams else math.inf

    @property
    def _streams_run(self) -> bool:
        return any(map(_is_stream, self._running.values()))

    def _pause_idle(self) -> None:
        """Take the places of idle prompts that are not read to their end. They stay the first of their kind."""
        for sequence in list(self._running.values()):
            if sequence.is_idle and sequence.stage is Stage.PREFILL and sequence.num_to_prefill:
                self.pause(sequence)

    def _preempt(self) -> None:
        """Make room for those who wait and find every place taken, by sequences of a worse level. Mutates."""
        running = list(self._running.values())
        room = self.max_num_seqs - sum(not s.makes_room for s in running)
        candidates = [s for s in running if s.may_pause and not self._patience.has_turn(s)]
        for victim in sorted(candidates, key=self._policy.rank, reverse=True):
            if self._waiting.num_below(self._policy.level(victim)) <= room:
                return  # fewer still are below the levels of the others
            if victim.stage is Stage.DECODE:
                victim.is_leaving = True
            elif victim.is_idle or self._num_held < self.max_num_seqs:
                self.pause(victim)
            else:
                continue
            room += 1

    def retreat(self) -> bool:
        """Let go of memory: of what is kept for those who wait, else of the last in the order that runs. Mutates.

        One goes at a time. Returns False if only one runs, which is never sent away.
        """
        for sequence in self._known.values():
            if sequence.stage is Stage.WAITING and sequence.layers is not None:
                sequence.forget()
                return True
        self._leave_last(self.running if len(self._running) > 1 else [])
        return len(self._running) > 1 or any(s.is_leaving for s in self._running.values())

    def _yield_to(self, first: Sequence) -> None:
        """Let the last of those of a worse level than one that lacks memory make room for it. Mutates."""
        level = self._policy.level(first)
        self._leave_last([s for s in self._running.values() if self._policy.level(s) > level])

    def _leave_last(self, sequences: list[Sequence]) -> None:
        """Take the place of the last in the order, and its state, unless somebody leaves already."""
        candidates = [s for s in sequences if s.may_pause]
        if not candidates or any(s.is_leaving for s in self._running.values()):
            return
        victim = max(candidates, key=lambda s: (not self._patience.has_turn(s), self._policy.rank(s)))
        if victim.stage is Stage.DECODE:
            victim.is_leaving = True
        else:
            victim.forget()
            self.pause(victim)

    @property
    def starved(self) -> Sequence | None:
        """Who would be the next to run and cannot though nobody else runs; None if somebody runs or nobody waits."""
        return None if self._running else self._waiting.first()

    @property
    def _num_held(self) -> int:
        """Prompts of people that wait with what is read of them."""
        held = (s.stage is Stage.WAITING and s.layers is not None and not s.is_idle for s in self._known.values())
        return sum(held)

    def plan(self, *, stall_limit: int | None = None, memory_limit: int | None = None) -> Plan:
        """Return the prefill work of the next step. Does not mutate.

        ``stall_limit`` is the most that it reads while somebody decodes, ``memory_limit`` the most that it ever reads;
        None sets no limit beside the budget.
        """
        prefilling = [s for s in self._running.values() if s.stage is Stage.PREFILL and s.awaits is None]
        if not prefilling:
            return Plan([], [])
        prefilling.sort(key=self._urgency)  # who comes later may come first
        budget = self.max_num_batched_tokens - sum(s.stage is not Stage.PREFILL for s in self._running.values())
        if not self._serves_somebody:
            budget = min(budget, MAX_IDLE_TOKENS)
        if stall_limit is not None and self._streams_run:
            budget = min(budget, stall_limit)
        if memory_limit is not None:
            budget = min(budget, memory_limit)
        prefilling = self._short_first(prefilling, budget)
        scored_budget = self.max_scored_tokens
        groups: list[list[Chunk]] = []
        ready: list[Sequence] = []
        group: list[Chunk] = []
        for sequence in prefilling:
            todo = sequence.num_to_prefill
            if todo == 0:
                ready.append(sequence)
                continue
            if group and self._fits(group, sequence, budget):
                group.append(Chunk(sequence, todo))
                continue
            if group:
                budget -= padded_length(group)
                group = []
            if budget <= 0:
                break
            if sequence.is_scored:
                length = min(sequence.num_to_stop, budget, scored_budget)
                if length:
                    groups.append([Chunk(sequence, length)])
                    budget -= length
                    scored_budget -= length
                continue
            group = [Chunk(sequence, min(sequence.num_to_stop, budget))]
            groups.append(group)
        return Plan(groups, ready)

    def _short_first(self, prefilling: list[Sequence], budget: int) -> list[Sequence]:
        """Return them with those in front that a part of the budget suffices for, unless the first waits too long.

        So a question of a few tokens need not wait until somebody's long prompt is read, which that costs little.
        """
        first, room = prefilling[0], max(int(SHORT_SHARE * budget), MIN_SHORT_TOKENS)
        if first.num_to_prefill <= room or self._patience.is_over(first):
            return prefilling
        level = self._policy.level(first)
        passing: list[Sequence] = []
        for sequence in prefilling:
            if self._policy.level(sequence) == level and sequence.num_to_prefill <= room and not sequence.is_scored:
                passing.append(sequence)
                room -= sequence.num_to_prefill
        return [*passing, *(s for s in prefilling if s not in passing)]

    def _urgency(self, sequence: Sequence) -> tuple[bool, Rank]:
        """Return the order in which prompts are read: those that wait too long for it first."""
        return not self._patience.is_over(sequence), self._policy.rank(sequence)

    def _fits(self, group: list[Chunk], sequence: Sequence, budget: int) -> bool:
        """Return whether a whole remaining prompt can join the forward of ``group`` without too much padding.

        Rows are padded twice: what they read to the longest chunk, which costs this forward, and what they have read
        before to the longest state, which would cost every step of the batch from then on.
        """
        first, todo = group[0].sequence, sequence.num_to_prefill
        if sequence.isolated or first.isolated or sequence.is_scored or self.prefill_mode == "solo":
            return False
        if group[0].length < first.num_to_prefill or sequence.num_to_stop < todo:  # a piece of a long prompt
            return False
        if self.prefill_mode == "equal" and (todo != group[0].length or first.num_computed or sequence.num_computed):
            return False
        lengths = [todo, *(chunk.length for chunk in group)]
        computed = [sequence.num_computed, *(chunk.sequence.num_computed for chunk in group)]
        longest = max(map(sum, zip(lengths, computed, strict=True)))
        padded = len(lengths) * max(lengths)
        return (
            padded <= budget
            and padded <= MAX_PADDING * sum(lengths)
            and max(lengths) + max(computed) <= MAX_STATE_PADDING * longest
        )


def _is_stream(sequence: Sequence) -> bool:
    """Return whether somebody waits for a sequence's next token."""
    return sequence.stage is Stage.DECODE and not sequence.is_idle and bool(sequence.submit.max_tokens)


def padded_length(group: list[Chunk]) -> int:
    """Return how many tokens the forward of a group reads, padding included."""
    return len(group) * max(chunk.length for chunk in group)
