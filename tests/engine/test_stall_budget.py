"""How much is read while streams run, on simulated machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.engine.stall_budget import MAX_CROWDING, MIN_STEPS, MIN_TOKENS, StallBudget


class Machine:
    """Runs steps as an engine does: enqueues in order, and waits for the step before the one that it launches."""

    def __init__(self, target_s: float, decode_s: float, prefill_s: Callable[[int], float]) -> None:
        self.now = 0.0
        self.num_bytes = 1000
        self.stalls = StallBudget(target_s, clock=lambda: self.now)
        self._decode_s = decode_s
        self._prefill_s = prefill_s
        self._work = 0.0
        self._in_flight: list[float] = []

    def step(self, most: int = 0) -> tuple[int, float]:
        """Launch, settle, read up to ``most``; return what was read and how long the step that settled took."""
        self._in_flight.append(self._work + self._decode_s * self.num_bytes / 1000)
        self.stalls.launched(self.num_bytes)
        gap = 0.0
        if len(self._in_flight) > 1:
            gap = self._in_flight.pop(0)
            self.now += gap
            self.stalls.settled()
        else:
            self.stalls.rested()
        limit = self.stalls.limit(self.num_bytes)
        length = most if limit is None else min(most, limit)
        self._work = self._prefill_s(length) if length else 0.0
        if length:
            self.stalls.read(length)
        return length, gap


@given(
    target_s=st.floats(0.05, 0.5),
    decode_share=st.floats(0.05, 0.5),
    fixed_share=st.floats(0.0, 0.3),
    token_s=st.floats(1e-5, 1e-3),
)
def test_gaps_converge_to_the_target_and_chunks_to_what_fits_it(target_s, decode_share, fixed_share, token_s):
    wait_s = target_s * max(1, MIN_STEPS * decode_share)
    room_s = wait_s - target_s * decode_share
    fixed_s = fixed_share * room_s
    machine = Machine(target_s, decode_share * target_s, lambda n: fixed_s + token_s * n)
    for _ in range(5):
        machine.step()
    steps = [machine.step(10**6) for _ in range(80)][-10:]
    fits = (room_s - fixed_s) / token_s
    for length, gap in steps:
        assert gap <= 1.05 * wait_s or length == MIN_TOKENS
        assert length == pytest.approx(max(MIN_TOKENS, fits), rel=0.05, abs=2)


@given(decode_s=st.floats(0.001, 1.0), token_s=st.floats(1e-6, 1.0))
def test_reading_always_goes_on_however_slow_the_machine(decode_s, token_s):
    machine = Machine(0.1, decode_s, lambda n: token_s * n)
    for _ in range(3):
        machine.step()
    assert all(machine.step(10**6)[0] >= MIN_TOKENS for _ in range(20))


def test_a_cost_that_grows_with_the_context_is_followed():
    context = 0

    def prefill_s(length: int) -> float:
        nonlocal context
        context += length
        return length * (1e-4 + 1e-8 * context)

    machine = Machine(0.1, 0.02, prefill_s)
    for _ in range(5):
        machine.step()
    gaps = [machine.step(10**6)[1] for _ in range(60)]
    assert max(gaps[10:]) < 0.12


def test_streams_that_come_and_go_while_prompts_are_read_are_reckoned_with():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(5):
        machine.step()
    for num_bytes in (1000, 1500, 2000, 500):
        machine.num_bytes = num_bytes
        gaps = [machine.step(10**6)[1] for _ in range(20)]
        assert gaps[-1] == pytest.approx(0.1, rel=0.02)


def test_copying_the_states_of_rows_that_join_is_no_cost_of_reading():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(5):
        machine.step()
    for _ in range(20):
        machine.step(10**6)
    usual = machine.stalls.limit(1000)
    machine.stalls.joined()
    machine.step(10**6)
    machine.now += 3.0
    machine.step(10**6)
    machine.step(10**6)
    assert machine.stalls.limit(1000) == pytest.approx(usual, rel=0.02)


def test_one_slow_step_is_soon_forgotten():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(20):
        machine.step(10**6)
    usual, _ = machine.step(10**6)
    machine.now += 3.0  # the machine was busy with something else
    after = [machine.step(10**6)[0] for _ in range(15)]
    assert min(after) < usual / 2
    assert after[-1] == pytest.approx(usual, rel=0.05)


def test_one_slow_decode_step_says_nothing_of_the_others():
    machine = Machine(0.1, 0.08, lambda n: 1e-4 * n)
    for _ in range(9):
        machine.step()
    machine.now += 0.3
    machine.step()
    gaps = [machine.step(10**6)[1] for _ in range(60)]
    assert max(gaps[10:]) == pytest.approx(MIN_STEPS * 0.08, rel=0.02)


def test_a_new_batch_has_room_behind_a_short_prompt_and_none_behind_a_long_one():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    assert machine.stalls.has_room(1000, 1000)  # nothing is known yet
    for _ in range(30):
        machine.step(10**6)
    assert not machine.stalls.has_room(1000, 1000)
    machine.stalls.launched(1000)
    assert machine.stalls.has_room(1000, 1000)  # nothing was read
    machine.stalls.read(300)
    assert machine.stalls.has_room(1000, 1000)


def test_what_new_batches_read_is_reckoned_with():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(30):
        machine.step(10**6)
    assert machine.stalls.limit(1000) == pytest.approx(800, rel=0.02)
    assert machine.stalls.limit(2000) == pytest.approx(600, rel=0.02)


def test_time_without_streams_is_not_learned_from():
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(20):
        machine.step(10**6)
    usual = machine.stalls.limit(1000)
    machine.stalls.rested()
    machine.now += 60
    machine.step(10**6)
    assert machine.stalls.limit(1000) == usual


@pytest.mark.parametrize(("crowding", "factor"), [(0.1, 1), (1, 1), (3, 3), (1000, MAX_CROWDING)])
def test_where_more_prompts_are_read_than_streams_run_those_wait_longer(crowding, factor):
    machine = Machine(0.1, 0.02, lambda n: 1e-4 * n)
    for _ in range(5):
        machine.step()
    for _ in range(20):
        machine.step(10**6)
    usual = machine.stalls.limit(1000)
    assert usual is not None
    assert usual == pytest.approx(800, rel=0.05)
    expected = (0.1 * factor - 0.02) / 1e-4
    assert machine.stalls.limit(1000, crowding) == pytest.approx(min(expected, 2 * usual), rel=0.05)
    for _ in range(5):
        machine.stalls.read(10**5)  # what was read with more waiting
        machine.stalls.launched(1000)
        machine.now += 10.02
        machine.stalls.settled()
    assert machine.stalls.limit(1000, crowding) == pytest.approx(expected, rel=0.05)


def test_without_a_target_there_is_no_limit():
    machine = Machine(0.0, 0.02, lambda n: n)
    assert [machine.step(5000)[0] for _ in range(4)] == [5000] * 4
