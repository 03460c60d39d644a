"""The scheduler alone: budgets, order and grouping, without a model."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import IDLE_PRIORITY
from vllm_mlx_core.engine.messages import SamplingSpec, Submit
from vllm_mlx_core.engine.scheduler import PrefillMode, Scheduler
from vllm_mlx_core.engine.sequence import Sequence, Stage


def sequence(number: int, length: int, priority: int = 0) -> Sequence:
    return Sequence(
        Submit(sequence_id=number, request_id=str(number), prompt=[1] * length, max_tokens=4, priority=priority)
    )


def scheduler(lengths: list[int], *, seqs: int = 8, budget: int = 100, mode: PrefillMode = "ragged") -> Scheduler:
    made = Scheduler(max_num_seqs=seqs, max_num_batched_tokens=budget, prefill_mode=mode, max_scored_tokens=50)
    for number, length in enumerate(lengths):
        made.add(sequence(number, length))
    return made


def ids(groups) -> list[list[int]]:
    return [[chunk.sequence.id for chunk in group] for group in groups]


def test_prompts_that_fit_the_budget_are_read_in_one_forward():
    s = scheduler([11, 21, 31])
    list(s.admit())
    plan = s.plan()
    assert ids(plan.groups) == [[0, 1, 2]]
    assert [c.length for c in plan.groups[0]] == [10, 20, 30]


def test_a_long_prompt_is_cut_to_the_budget_and_read_alone():
    s = scheduler([251, 81])
    list(s.admit())
    plan = s.plan()
    assert ids(plan.groups) == [[0]]
    assert plan.groups[0][0].length == 100


def test_short_prompts_pass_a_long_one_that_came_before_them_and_leave_it_a_share():
    s = scheduler([2001, 31, 41, 25], budget=200)
    list(s.admit())
    groups = [[(chunk.sequence.id, chunk.length) for chunk in group] for group in s.plan().groups]
    assert groups[:-1] == [[(1, 30), (3, 24)]]  # both fit in 64 tokens, the third does not beside them
    assert groups[-1] == [(0, 200 - 60)]


def test_a_long_prompt_that_has_waited_too_long_is_passed_by_nobody():
    now = 0.0
    s = Scheduler(
        max_num_seqs=8,
        max_num_batched_tokens=200,
        prefill_mode="ragged",
        max_scored_tokens=200,
        clock=lambda: now,
    )
    for number, length in enumerate([2001, 31]):
        s.add(Sequence(Submit(sequence_id=number, request_id=str(number), prompt=[5] * length, max_tokens=5)))
    list(s.admit())
    now = 31.0
    assert ids(s.plan().groups) == [[0]]


def test_a_prompt_is_read_alone_up_to_a_stop_and_with_others_after_it():
    s = scheduler([41, 11, 21], budget=90)
    first, second, third = s.admit()
    first.stops = {7, 30, 40}
    third.stops = {20}  # where it ends anyway
    assert [[(chunk.sequence.id, chunk.length) for chunk in group] for group in s.plan().groups] == [
        [(0, 7)],
        [(1, 10), (2, 20)],
    ]
    first.num_computed = 7
    s.finish(second)
    assert [[(chunk.sequence.id, chunk.length) for chunk in group] for group in s.plan().groups] == [
        [(0, 23)],
        [(2, 20)],
    ]
    first.num_computed = 30
    third.num_computed = 10
    assert ids(s.plan().groups) == [[0, 2]]


def test_a_stop_beyond_the_budget_does_not_lengthen_a_chunk():
    s = scheduler([251], budget=100)
    (only,) = s.admit()
    only.stops = {150}
    for length in (100, 50, 100):
        (chunk,) = s.plan().groups[0]
        assert chunk.length == length
        only.num_computed += length
    assert s.plan().ready == [only]


def test_prompts_that_are_scored_are_read_alone_and_within_their_own_budget():
    s = scheduler([11, 11], budget=90)
    for number in (2, 3, 4):
        asks = SamplingSpec(prompt_logprobs=0)
        s.add(Sequence(Submit(sequence_id=number, request_id="", prompt=[1] * 31, max_tokens=4, sampling=asks)))
    s.add(sequence(5, 11))
    *_, told, _ = s.admit()
    plan = s.plan()
    assert [[(chunk.sequence.id, chunk.length) for chunk in group] for group in plan.groups] == [
        [(0, 10), (1, 10)],
        [(2, 30)],
        [(3, 20)],
        [(5, 10)],
    ]
    told.output.append(1)  # it was told already, and is computed again
    assert [(each.sequence.id, each.length) for each in s.plan().groups[-1]] == [(4, 20)]


def test_decoding_sequences_take_their_share_of_the_budget_first():
    s = scheduler([251, 5, 5])
    first, *others = s.admit()
    for other in others:
        other.stage = Stage.DECODE
    assert s.plan().groups[0][0].length == 98
    assert first.stage is Stage.PREFILL


def test_only_equal_lengths_go_together_where_the_model_mixes_up_others():
    s = scheduler([11, 11, 12], mode="equal")
    list(s.admit())
    assert ids(s.plan().groups) == [[0, 1], [2]]


def test_every_prompt_is_read_alone_where_the_model_cannot_batch_prompts():
    s = scheduler([11, 11], mode="solo")
    list(s.admit())
    assert ids(s.plan().groups) == [[0], [1]]


def test_a_one_token_prompt_needs_no_prefill():
    s = scheduler([1])
    list(s.admit())
    plan = s.plan()
    assert not plan.groups
    assert [each.id for each in plan.ready] == [0]


def test_lower_priority_values_go_first_and_equals_keep_their_order():
    s = Scheduler(max_num_seqs=2, max_num_batched_tokens=100, prefill_mode="ragged", max_scored_tokens=50)
    for number, priority in enumerate([0, 5, -1, 0]):
        s.add(sequence(number, 3, priority))
    admitted = list(s.admit())
    assert [each.id for each in admitted] == [2, 0]
    for each in admitted:
        s.finish(each)
    assert [each.id for each in s.admit()] == [3, 1]


def test_a_sequence_that_lost_its_state_goes_back_to_its_place():
    s = scheduler([3, 3, 3], seqs=2)
    first, second = s.admit()
    s.requeue(second)
    s.requeue(first)
    assert [each.id for each in s.admit()] == [0, 1]


def test_an_aborted_waiting_sequence_is_never_admitted():
    s = scheduler([3, 3], seqs=1)
    list(s.admit())
    waiting = s.get(1)
    assert waiting is not None
    s.finish(waiting)
    assert (s.num_running, s.num_waiting) == (1, 0)
    running = s.get(0)
    assert running is not None
    s.finish(running)
    assert list(s.admit()) == []


@given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    seqs=st.integers(1, 8),
    budget=st.integers(8, 200),
    mode=st.sampled_from(["ragged", "equal", "solo"]),
)
def test_every_prompt_is_read_once_within_the_budget(lengths, seqs, budget, mode):
    s = scheduler(lengths, seqs=seqs, budget=budget, mode=mode)
    finished = 0
    for _ in range(10_000):
        list(s.admit())
        if not (s.num_running or s.num_waiting):
            break
        plan = s.plan()
        decoding = sum(each.stage is Stage.DECODE for each in s)
        padded = sum(len(g) * max(c.length for c in g) for g in plan.groups)
        assert padded + decoding <= max(budget, decoding)
        assert plan.groups or plan.ready or decoding
        for each in s:
            if each.stage is Stage.DECODE:
                s.finish(each)
                finished += 1
        for group in plan.groups:
            assert mode != "solo" or len(group) == 1
            for chunk in group:
                assert 0 < chunk.length <= chunk.sequence.num_to_prefill
                assert len(group) == 1 or chunk.length == chunk.sequence.num_to_prefill
                chunk.sequence.num_computed += chunk.length
                if chunk.sequence.num_to_prefill == 0:
                    chunk.sequence.stage = Stage.DECODE
        for each in plan.ready:
            each.stage = Stage.DECODE
    assert finished == len(lengths)


def test_who_arrives_later_with_a_lower_priority_value_is_read_first():
    s = scheduler([1001])
    list(s.admit())
    s.plan().groups[0][0].sequence.num_computed = 100
    s.add(sequence(7, 21, priority=-1))
    list(s.admit())
    assert ids(s.plan().groups) == [[7], [0]]


def test_a_prompt_with_a_cached_beginning_is_read_alone_where_only_equal_prompts_go_together():
    s = scheduler([11, 31], mode="equal")
    cold, warm = s.admit()
    warm.num_computed = 20
    assert warm.num_to_prefill == cold.num_to_prefill
    assert ids(s.plan().groups) == [[0], [1]]


def test_a_half_read_prompt_is_not_padded_into_a_forward_with_fresh_ones():
    s = scheduler([80, 80, 80], budget=120)
    list(s.admit())
    first = s.plan()
    assert ids(first.groups) == [[0], [1]]  # the second gets what is left of the budget
    for group in first.groups:
        for chunk in group:
            chunk.sequence.num_computed += chunk.length
    done = s.get(0)
    assert done is not None
    done.stage = Stage.DECODE
    assert ids(s.plan().groups) == [[1], [2]]


def test_a_short_prompt_is_not_padded_to_a_much_longer_one():
    s = scheduler([90, 3], budget=1000)
    list(s.admit())
    assert ids(s.plan().groups) == [[0], [1]]


def idle(number: int, length: int) -> Sequence:
    return sequence(number, length, IDLE_PRIORITY)


def test_idle_prompts_are_read_in_small_chunks():
    s = scheduler([], budget=2048)
    for number in range(3):
        s.add(idle(number, 201))
    list(s.admit())
    plan = s.plan()
    assert [[(chunk.sequence.id, chunk.length) for chunk in group] for group in plan.groups] == [[(0, 200)], [(1, 56)]]


def test_idle_prompts_are_not_read_while_somebody_is_waited_for():
    s = scheduler([301], budget=100)
    s.add(idle(1, 50))
    (waited_for,) = s.admit()
    assert ids(s.plan().groups) == [[0]]
    waited_for.stage = Stage.DECODE
    assert (list(s.admit()), s.plan().groups) == ([], []), "nor while it decodes"
    s.finish(waited_for)
    assert [each.id for each in s.admit()] == [1]
    assert ids(s.plan().groups) == [[1]]


def test_idle_prompts_leave_their_places_to_whoever_comes_and_go_on_where_they_were():
    s = scheduler([], seqs=2)
    for number in range(3):
        s.add(idle(number, 101))
    begun, other = s.admit()
    begun.num_computed, begun.layers = 60, []
    for number in (3, 4):
        s.add(sequence(number, 11))
    people = list(s.admit())
    assert [each.id for each in people] == [3, 4]
    assert (s.num_running, s.num_waiting) == (2, 3)
    s.finish(people[0])
    assert not list(s.admit())
    s.finish(people[1])
    assert list(s.admit()) == [begun, other]
    assert (begun.num_computed, begun.restarts) == (60, 0)
    assert s.plan().groups[0][0] == (begun, 40)


def test_idle_sequences_that_are_read_or_decode_make_room_only_if_no_place_is_free():
    s = scheduler([], seqs=3)
    for number in range(2):
        s.add(idle(number, 101))
    read, decoding = s.admit()
    read.num_computed = 100
    decoding.stage, decoding.in_flight = Stage.DECODE, 1
    s.add(sequence(2, 11))
    assert [each.id for each in s.admit()] == [2]
    plan = s.plan()
    assert (ids(plan.groups), plan.ready) == ([[2]], [read])
    s.add(sequence(3, 11))
    assert not list(s.admit())
    assert [each for each in s if each.is_leaving] == [decoding], "the last to come, once its token is read"
    decoding.in_flight = 0
    s.pause(decoding)
    assert [each.id for each in s.admit()] == [3]
    s.add(sequence(4, 11))
    assert [each.id for each in s.admit()] == [4], "a prompt has no token in flight"
    assert (read.stage, decoding.stage) == (Stage.WAITING, Stage.WAITING)


def test_a_paused_prompt_that_is_aborted_is_gone():
    s = scheduler([], seqs=1)
    s.add(idle(0, 101))
    (paused,) = s.admit()
    s.add(sequence(1, 11))
    (person,) = s.admit()
    s.finish(paused)
    s.finish(person)
    assert not list(s.admit())
    assert (s.num_running, s.num_waiting) == (0, 0)


class Memory:
    """Has room for so many tokens of prompts together. A clock that is set by hand goes with it."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.now = 0.0

    def may_start(self, sequence: Sequence, running: Iterable[Sequence]) -> bool:
        return sum(s.num_tokens for s in [sequence, *running]) <= self.room

    def scheduler(self) -> Scheduler:
        return Scheduler(
            max_num_seqs=8,
            max_num_batched_tokens=100,
            prefill_mode="ragged",
            max_scored_tokens=50,
            may_start=self.may_start,
            clock=lambda: self.now,
        )


def admitted(s: Scheduler) -> list[int]:
    return [each.id for each in s.admit()]


def test_who_lacks_memory_is_passed_by_smaller_ones_until_it_has_waited_too_long():
    memory = Memory(100)
    s = memory.scheduler()
    sequences = [sequence(number, length) for number, length in enumerate([60, 70, 20, 30, 5])]
    for each in sequences[:4]:
        s.add(each)
    assert admitted(s) == [0, 2]
    s.finish(sequences[2])
    assert admitted(s) == [3]
    memory.now = 1000.0
    s.add(sequences[4])
    s.finish(sequences[3])
    assert admitted(s) == [], "nobody passes it any more"
    s.finish(sequences[0])
    assert admitted(s) == [1, 4]


def test_who_lacks_memory_gets_that_of_worse_levels_and_is_not_passed_by_them():
    s = Memory(100).scheduler()
    for number in (0, 1):
        s.add(sequence(number, 40, priority=5))
    assert admitted(s) == [0, 1]
    urgent = sequence(2, 60)
    s.add(urgent)
    assert admitted(s) == [], "the last one makes room, and does not get it back"
    assert admitted(s) == [2]
    s.finish(urgent)
    assert admitted(s) == [1]


def test_memory_is_taken_from_those_who_wait_then_from_the_last_and_never_from_the_only_one():
    s = Memory(100).scheduler()
    for number in range(3):
        s.add(sequence(number, 20))
    assert admitted(s) == [0, 1, 2]
    first, second, last = s.running
    last.layers, last.num_computed = [], 10
    s.pause(last)
    assert s.retreat()
    assert last.layers is None
    assert not last.num_computed
    second.stage = Stage.DECODE
    assert s.retreat()
    assert second.is_leaving
    assert s.retreat()
    assert s.num_running == 2, "one at a time"
    s.pause(second)
    assert not s.retreat()
    assert s.running == [first]
