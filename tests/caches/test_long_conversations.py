"""A conversation that outgrows the budget resumes at its last message in every policy, whatever is dropped for that."""

import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_caches.paged import PagedCache
from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_core.api import CacheSpec
from vllm_mlx_core.testing import FakeState

TURNS = 40
TURN = 2
SNAPSHOT = 5
POLICIES = [
    pytest.param(LRUCache, {}, id="lru"),
    pytest.param(RadixCache, {}, id="radix"),
    *(pytest.param(PagedCache, {"block_size": str(size)}, id=f"paged-{size}") for size in (1, 2, 3, 64)),
]


def state(tokens):
    """Return that of a model with recurrent layers, whose snapshots hold more than a turn's tokens do."""
    return FakeState(tokens, can_truncate=False, bytes_per_token=1)


class Damaged(FakeState):
    """A state that cannot be cut."""

    def segment(self, start, stop):
        raise MemoryError(f"There is no room for tokens {start} to {stop}.")


def resume(cache, tokens):
    """Return how many tokens a prompt saves."""
    lease = cache.match(tokens)
    if lease is None:
        return 0
    lease.release()
    return lease.state.num_tokens


def turn(number, first=0):
    return tuple(range(first, first + number * TURN))


@pytest.mark.parametrize("snapshots", [1, 2, 10])
@pytest.mark.parametrize(("policy", "options"), POLICIES)
def test_each_turn_resumes_at_the_end_of_the_one_before(policy, options, snapshots):
    cache = policy(CacheSpec(TURNS * TURN + snapshots * SNAPSHOT, options))
    saved = []
    for number in range(1, TURNS + 1):
        saved.append(resume(cache, turn(number)))
        cache.insert(turn(number), state(turn(number)))
        cache.check()
    assert saved == [number * TURN for number in range(TURNS)]


@pytest.mark.parametrize(("policy", "options"), POLICIES[1:])
def test_a_lease_on_the_turn_before_does_not_keep_the_next_one_out(policy, options):
    cache = policy(CacheSpec(2 * TURNS * TURN + 3 * SNAPSHOT, options))
    cache.insert(turn(1), state(turn(1)))
    for number in range(2, TURNS + 1):
        lease = cache.match(turn(number))
        assert lease.state.tokens == turn(number - 1)
        cache.insert(turn(number), state(turn(number)))
        cache.check()
        assert lease.state.tokens == turn(number - 1)
        lease.release()
    assert resume(cache, turn(TURNS + 1)) == TURNS * TURN


@pytest.mark.parametrize(("policy", "options"), POLICIES[1:])
def test_a_beginning_that_others_resume_at_stays_while_a_conversation_grows(policy, options):
    cache = policy(CacheSpec(2 * TURNS * TURN + 10 * SNAPSHOT, options))  # ends are copied where they fill no block
    beginning = turn(3)
    for number in range(3, TURNS):
        resume(cache, turn(number))
        cache.insert(turn(number), state(turn(number)))
        assert resume(cache, (*beginning, 999)) == len(beginning)
        cache.check()
    assert resume(cache, turn(TURNS)) == (TURNS - 1) * TURN
    assert resume(cache, turn(5)) == len(beginning)  # nobody came back to the turn after it


@pytest.mark.parametrize(("policy", "options"), POLICIES)
def test_an_idle_conversation_gives_way_only_to_itself(policy, options):
    person = turn(20, first=1000)
    cache = policy(CacheSpec(len(person) + SNAPSHOT + TURNS * TURN + 3 * SNAPSHOT, options))
    cache.insert(person, state(person))
    for number in range(1, TURNS + 1):
        assert resume(cache, turn(number)) == (number - 1) * TURN
        cache.insert(turn(number), state(turn(number)), idle=True)
        cache.check()
    assert resume(cache, (*person, 1)) == len(person)


@pytest.mark.parametrize(("policy", "options"), POLICIES[1:])
def test_a_turn_that_cannot_be_cut_leaves_the_books_in_order(policy, options):
    cache = policy(CacheSpec(2 * TURN + SNAPSHOT, options))
    cache.insert(turn(1), state(turn(1)))
    with pytest.raises(MemoryError):
        cache.insert(turn(2), Damaged(turn(2), can_truncate=False, bytes_per_token=1))
    cache.check()
    cache.insert(turn(2), state(turn(2)))
    cache.check()
    assert resume(cache, turn(3)) == 2 * TURN
