"""Fair shares, preemption and an end to waiting, as the scheduler deals them out on a simulated clock."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import IDLE_PRIORITY, EngineSettings
from vllm_mlx_core.engine.messages import Submit
from vllm_mlx_core.engine.patience import MAX_WAIT_S
from vllm_mlx_core.engine.policies import make_policy
from vllm_mlx_core.engine.scheduler import Scheduler
from vllm_mlx_core.engine.sequence import Sequence, Stage


class Server:
    """An engine without a model: each step reads what is planned and gives every decoding sequence one token."""

    def __init__(self, max_num_seqs: int, policy: str = "priority", *, step_s: float = 1.0, **shares: float) -> None:
        self.now = 0.0
        self.step_s = step_s
        self.scheduler = Scheduler(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=64,
            prefill_mode="ragged",
            max_scored_tokens=64,
            policy=make_policy(EngineSettings(scheduling_policy=policy, fair_shares=shares)),  # type: ignore[arg-type]
            clock=lambda: self.now,
        )
        self._ids = itertools.count()
        self.admitted: dict[int, float] = {}
        self.order: list[int] = []
        self.served: Counter[str] = Counter()

    def add(self, priority: int = 0, user: str = "", *, prompt: int = 5, tokens: int = 5) -> Sequence:
        number = next(self._ids)
        submit = Submit(
            sequence_id=number,
            request_id=str(number),
            prompt=[1] * prompt,
            max_tokens=tokens,
            priority=priority,
            user=user,
        )
        sequence = Sequence(submit)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        scheduler = self.scheduler
        for sequence in scheduler.admit():
            self.order.append(sequence.id)
            if sequence.id not in self.admitted:
                self.admitted[sequence.id] = self.now
                self.served[sequence.submit.user] += len(sequence.submit.prompt)
        assert scheduler.num_running <= scheduler.max_num_seqs
        for sequence in scheduler:
            if sequence.stage is Stage.DECODE:
                sequence.output.append(1)
                sequence.num_computed += 1
                self.served[sequence.submit.user] += 1
                if len(sequence.output) == sequence.submit.max_tokens:
                    scheduler.finish(sequence)
                elif sequence.is_leaving:
                    scheduler.pause(sequence)
        plan = scheduler.plan()
        for chunk in itertools.chain.from_iterable(plan.groups):
            chunk.sequence.num_computed += chunk.length
            if not chunk.sequence.num_to_prefill:
                chunk.sequence.stage = Stage.DECODE
        for sequence in plan.ready:
            sequence.stage = Stage.DECODE
        self.now += self.step_s

    def run(self, steps: int = 2000) -> None:
        """Step until nothing is left."""
        for _ in range(steps):
            if not (self.scheduler.num_running or self.scheduler.num_waiting):
                return
            self.step()
        raise AssertionError("it never came to its end")


def test_first_come_first_served_takes_nobodys_word_for_its_priority_but_that_it_is_idle():
    server = Server(1, "fcfs")
    idle, first, second = server.add(IDLE_PRIORITY), server.add(5), server.add(-5)
    server.run()
    assert server.order == [first.id, second.id, idle.id]


def test_the_worst_priority_makes_room_and_of_equals_who_came_last():
    server = Server(3)
    worst, other_worst, better = server.add(5), server.add(5), server.add(3)
    server.step()
    server.step()
    urgent = [server.add(1), server.add(4)]
    list(server.scheduler.admit())
    assert [each.is_leaving for each in (worst, other_worst, better)] == [True, True, False]
    server.run()
    assert server.order[3:] == [each.id for each in (*urgent, worst, other_worst)]


def test_equals_never_take_a_place():
    for policy in ("fcfs", "priority", "fair"):
        server = Server(1, policy)
        server.add(user="a", tokens=20)
        server.step()
        server.add(user="b")
        server.run()
        assert server.order == [0, 1]


def test_a_prompt_that_is_read_goes_back_with_what_is_read_of_it():
    server = Server(1)
    slow = server.add(5, prompt=200)
    server.step()
    slow.layers = []
    urgent = server.add()
    assert list(server.scheduler.admit()) == [urgent]
    assert (slow.stage, slow.num_computed, slow.restarts) == (Stage.WAITING, 64, 0)


@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=2, max_size=3),
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=3),
    places=st.integers(1, 4),
)
def test_backlogged_users_are_served_by_their_weights(weights, lengths, places):
    users = [f"u{n}" for n in range(min(len(weights), len(lengths)))]
    shares = dict(zip(users, weights, strict=False))
    server = Server(places, "fair", step_s=0.0, **shares)
    for user, length in zip(users, lengths, strict=False):  # the first floods before the second comes
        for _ in range(400):
            server.add(user=user, prompt=1, tokens=length)
    for _ in range(200):
        server.step()
    served = [server.served[user] / shares[user] for user in users]
    assert max(served) - min(served) <= 2 * places * (max(lengths) + 1)


@pytest.mark.parametrize(("cached", "order"), [(0, [0, 1, 3, 2]), (49, [0, 1, 2, 3])])
def test_a_prompt_counts_as_served_without_what_the_cache_had_of_it(cached, order):
    server = Server(1, "fair")
    for user, prompt in (("a", 50), ("b", 30), ("a", 4), ("b", 4)):
        server.add(user=user, prompt=prompt, tokens=4)
    for first in server.scheduler.admit():
        first.num_computed = cached
        server.order.append(first.id)
    server.run()
    assert server.order == order


def test_time_that_a_user_did_not_use_is_no_claim_on_later():
    server = Server(1, "fair", step_s=0.0)
    for _ in range(40):
        server.add(user="busy", tokens=10)
    for _ in range(200):
        server.step()
    begun = len(server.order)
    late = {server.add(user="late", tokens=10).id for _ in range(40)}
    for _ in range(200):
        server.step()
    share = sum(each in late for each in server.order[begun:]) / len(server.order[begun:])
    assert share == pytest.approx(0.5, abs=0.1)


@given(
    policy=st.sampled_from(["fcfs", "priority", "fair"]),
    places=st.integers(1, 9),
    flood=st.lists(st.tuples(st.integers(-3, 4), st.sampled_from("ab"), st.integers(1, 9)), min_size=1, max_size=6),
    victims=st.integers(1, 3),
)
def test_under_any_flood_of_better_priority_everybody_is_admitted_in_time(policy, places, flood, victims):
    server = Server(places, policy)
    patient = [server.add(5, "z", tokens=8) for _ in range(victims)]
    longest = 1 + 9 + 1  # steps of a second: a prompt, its tokens, the step in which its place is given away
    bound = MAX_WAIT_S + longest + victims * (MAX_WAIT_S + longest)
    arrivals = itertools.cycle(flood)
    while any(each.id not in server.admitted for each in patient):
        for _ in range(places):
            priority, user, tokens = next(arrivals)
            server.add(priority, user, tokens=tokens)
        server.step()
        assert server.now <= bound


def test_who_has_waited_too_long_keeps_its_place_for_a_turn():
    server = Server(1)
    patient = server.add(5, tokens=200)
    while patient.id not in server.admitted or server.now < MAX_WAIT_S:
        server.add(0)
        server.step()
    since = server.now
    while patient.stage is not Stage.WAITING:
        server.add(0)
        server.step()
    assert server.now - since >= MAX_WAIT_S - 2


def test_turns_take_a_quarter_of_the_places_at_most():
    server = Server(8)
    for _ in range(8):
        server.add(0, tokens=10**6)
    server.step()
    patient = [server.add(5, tokens=10**6) for _ in range(8)]
    server.now += MAX_WAIT_S
    for number in range(8):
        running = server.scheduler.get(number)
        assert running is not None
        server.scheduler.finish(running)
    urgent = [server.add(0, tokens=10**6) for _ in range(8)]
    server.step()
    assert server.order[8:] == [each.id for each in (*patient[:2], *urgent[:6])]


def test_idle_work_waits_as_long_as_anybody_is_served():
    server = Server(1)
    idle = server.add(IDLE_PRIORITY)
    while server.now < 5 * MAX_WAIT_S:
        server.add(0)
        server.step()
    assert idle.id not in server.admitted
