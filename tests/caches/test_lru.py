import itertools

import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core.api import CacheSpec, UsageError
from vllm_mlx_core.testing import FakeState


def lru(max_bytes=None, **options):
    return LRUCache(CacheSpec(max_bytes=max_bytes, options=options))


def store(cache, *tokens, can_truncate=True, salt="", idle=False):
    cache.insert(tokens, FakeState(tokens, can_truncate), salt=salt, idle=idle)


def found(cache, *tokens, salt=""):
    """Return how many tokens a prompt would save."""
    lease = cache.match(tokens, salt=salt)
    if lease is None:
        return 0
    lease.release()
    return lease.state.num_tokens


def test_the_least_recently_used_entry_goes_first():
    cache = lru(max_entries="2")
    store(cache, 1, 1)
    store(cache, 2, 2)
    assert found(cache, 1, 1, 1) == 2
    store(cache, 3, 3)
    assert [found(cache, n, n, n) for n in (1, 2, 3)] == [2, 0, 2]
    assert cache.stats().evictions == 1


def test_the_byte_budget_evicts_too():
    cache = lru(max_bytes=50)
    store(cache, 1, 1)
    store(cache, 2, 2)
    store(cache, 3, 3, 3)
    assert [found(cache, n, n, n, n) for n in (1, 2, 3)] == [0, 2, 3]
    assert cache.stats().nbytes == 50


def test_a_state_that_cannot_fit_evicts_nobody():
    cache = lru(max_bytes=50)
    store(cache, 1, 1)
    store(cache, 1, 1, 1, 1, 1, 1)
    assert found(cache, 1, 1, 1) == 2
    assert cache.stats().evictions == 0


def test_an_entry_that_a_longer_one_covers_is_replaced():
    cache = lru()
    store(cache, 1, 2)
    store(cache, 1, 2, 3)
    assert cache.stats().entries == 1
    assert found(cache, 1, 2, 9) == 2


def test_what_an_entry_covers_already_is_not_stored_again():
    cache = lru(max_entries="2")
    store(cache, 1, 2, 3)
    store(cache, 7, 7)
    store(cache, 1, 2)
    assert cache.stats().entries == 2
    store(cache, 8, 8)  # the covering entry counts as used, so the other one goes
    assert [found(cache, 1, 2, 3, 4), found(cache, 7, 7, 7)] == [3, 0]


def test_states_that_cannot_go_back_lie_side_by_side_with_their_beginnings():
    cache = lru()
    store(cache, 1, 2, can_truncate=False)
    store(cache, 1, 2, 3, 4, can_truncate=False)
    assert cache.stats().entries == 2
    assert found(cache, 1, 2, 3) == 2
    assert found(cache, 1, 2, 3, 4, 5) == 4


def test_pinned_entries_are_neither_replaced_nor_evicted():
    cache = lru(max_entries="1")
    store(cache, 1, 2)
    lease = cache.match((1, 2, 3))
    store(cache, 1, 2, 3)
    store(cache, 5, 6)
    assert cache.stats().entries == 1
    lease.release()
    store(cache, 5, 6)
    assert [found(cache, 1, 2, 3), found(cache, 5, 6, 7)] == [0, 2]


def test_a_replaced_entry_that_was_pinned_goes_later():
    cache = lru()
    store(cache, 1, 2)
    lease = cache.match((1, 2, 3))
    store(cache, 1, 2, 3)
    assert cache.stats().entries == 2
    lease.release()
    store(cache, 1, 2, 3, 4)
    assert cache.stats().entries == 1


def test_a_better_state_of_the_same_tokens_replaces_one_that_nobody_pins():
    cache = lru()
    store(cache, 1, 2, can_truncate=False)
    lease = cache.match((1, 2, 3))
    store(cache, 1, 2)
    assert found(cache, 1, 9) == 0
    lease.release()
    store(cache, 1, 2)
    assert found(cache, 1, 9) == 1
    cache.check()


@pytest.mark.parametrize(
    ("stored", "query", "reason"),
    [
        ((), (1, 2), "nothing is stored under this salt"),
        (((1, 2), True), (1,), "a prompt of 1 tokens has no proper prefix"),
        (((1, 2), True), (3, 4), "no entry begins like the prompt: the first difference to the nearest, of 2 tokens"),
        (((1, 2, 3), False), (1, 2, 9), "cannot go back, and the first difference is at token 2"),
        (((1, 2, 3), False), (1, 2, 3), "cannot go back, and the prompt does not go beyond it"),
    ],
)
def test_a_miss_explains_itself(stored, query, reason):
    cache = lru()
    if stored:
        tokens, can_truncate = stored
        store(cache, *tokens, can_truncate=can_truncate)
    assert found(cache, *query) == 0
    assert reason in cache.stats().last_miss.reason


def test_a_state_of_other_length_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="A state of 2 tokens was offered for 3"):
        lru().insert((1, 2, 3), FakeState((1, 2)))


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "١"])
def test_a_bad_number_of_entries_is_a_usage_error(value):
    with pytest.raises(UsageError, match="max_entries"):
        lru(max_entries=value)


def test_an_unknown_option_names_those_that_exist():
    with pytest.raises(UsageError, match=r"has no option 'size'. It knows: max_entries"):
        lru(size="3")


def test_check_notices_a_state_that_changed_its_length():
    cache = lru()
    state = FakeState((1, 2))
    cache.insert((1, 2), state)
    object.__setattr__(state, "tokens", (1,))
    with pytest.raises(AssertionError, match="damaged"):
        cache.check()


def test_prompts_of_a_hundred_thousand_tokens_are_compared_exactly():
    cache = lru()
    start = list(range(100_000))
    for length in (99_999, 70_001, 4_096):
        query = start[:length] + [7] * 3
        store(cache, *query)
    for length in (99_999, 70_001, 4_096):
        assert found(cache, *start[:length], 7, 8) == length + 1
        assert found(cache, *itertools.chain(start[:length], [8, 8])) == length


def test_what_is_idle_drives_out_its_kind_and_no_more_than_its_share_of_others():
    cache = lru(max_entries="4")
    for n in (1, 2):
        store(cache, n, n)
    for n in range(10, 20):
        store(cache, n, n, idle=True)
    assert [found(cache, n, n, n) for n in (1, 2, 17, 18, 19)] == [2, 2, 0, 2, 2]
    for n in (3, 4):
        store(cache, n, n)
    assert [found(cache, n, n, n) for n in (1, 2, 3, 4, 18, 19)] == [2, 2, 2, 2, 0, 0]
    for n in (20, 21):
        store(cache, n, n, idle=True)
    assert [found(cache, n, n, n) for n in (1, 2, 3, 4, 20, 21)] == [0, 2, 2, 2, 0, 2]
    cache.check()


def test_what_is_idle_has_no_more_than_its_share_of_the_bytes():
    cache = lru(max_bytes=160)
    for n in range(8):
        store(cache, n, n)
    store(cache, 20, 20, 20, idle=True)
    assert found(cache, 20, 20, 20, 20) == 0, "more than an eighth"
    store(cache, 21, 21, idle=True)
    assert [found(cache, n, n, n) for n in (0, 1, 21)] == [0, 2, 2]
    cache.check()


def test_an_idle_entry_that_somebody_stores_as_well_is_idle_no_more():
    cache = lru(max_entries="2")
    store(cache, 1, 1, idle=True)
    store(cache, 1, 1)
    store(cache, 2, 2, idle=True)
    store(cache, 3, 3)
    assert [found(cache, n, n, n) for n in (1, 2, 3)] == [2, 0, 2]


def test_what_is_idle_stands_for_nothing_of_others():
    cache = lru(max_entries="3")
    store(cache, 1, 1)
    store(cache, 1, 1, 1, idle=True)
    store(cache, 2, 2, 2, idle=True)
    store(cache, 2, 2)
    store(cache, 3, 3)
    assert [found(cache, n, n, n, n) for n in (1, 2, 3)] == [2, 2, 2]
    cache.check()


def test_somebodys_entry_stays_when_an_idle_one_of_the_same_tokens_could_take_its_place():
    cache = lru()
    store(cache, 1, 1, can_truncate=False)
    store(cache, 1, 1, idle=True)
    assert found(cache, 1, 1, 1) == 2
    assert cache.stats().entries == 1
    cache.check()
