from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_caches.paged import PagedCache
from vllm_mlx_core.api import CacheSpec, UsageError
from vllm_mlx_core.testing import FakeState

SYSTEM = tuple(range(100, 420))
TOKEN = 10
SNAPSHOT = 5


def make(max_bytes=None, **options):
    return PagedCache(CacheSpec(max_bytes, {name: str(value) for name, value in options.items()}))


def plain(tokens):
    return FakeState(tokens, bytes_per_token=TOKEN)


def recurrent(tokens):
    return FakeState(tokens, can_truncate=False, bytes_per_token=TOKEN)


def windowed(tokens):
    return FakeState(tokens, can_truncate=len(tokens) < 8, bytes_per_token=TOKEN, is_windowed=True)


class Padded(FakeState):
    """A state whose parts hold more than their share of it."""

    def segment(self, start, stop):
        return replace(super().segment(start, stop), bytes_per_token=TOKEN + 3)


def padded(tokens):
    return Padded(tokens, bytes_per_token=TOKEN)


def keep(cache, tokens, kind=plain, **how):
    cache.insert(tokens, kind(tokens), **how)
    cache.check()


def found(cache, tokens, **how):
    """Return how many tokens a prompt saves."""
    lease = cache.match(tokens, **how)
    if lease is None:
        return 0
    assert lease.state.tokens == tokens[: lease.state.num_tokens]
    lease.release()
    cache.check()
    return lease.state.num_tokens


def held(cache):
    stats = cache.stats()
    return stats.entries, stats.nbytes


def test_what_prompts_have_in_common_is_stored_once():
    cache = make()
    prompts = [(*SYSTEM, *[user] * (5 + user)) for user in range(20)]
    for tokens in prompts:
        keep(cache, tokens)
    whole = sum(plain(tokens).nbytes for tokens in prompts)
    assert cache.stats().nbytes <= 0.4 * whole
    assert held(cache) == (5 + 20, TOKEN * (320 + sum(5 + user for user in range(20))))
    assert [found(cache, (*tokens, 7)) for tokens in prompts] == [len(tokens) for tokens in prompts]


def test_blocks_of_one_beginning_are_not_found_behind_another():
    cache = make(block_size=4)
    keep(cache, (1, 1, 1, 1, 5, 6, 7, 8))
    keep(cache, (2, 2, 2, 2))
    assert found(cache, (2, 2, 2, 2, 5, 6, 7, 8, 9)) == 4
    assert found(cache, (5, 6, 7, 8, 9)) == 0


def test_an_end_that_fills_no_block_is_kept_and_grows_by_copying():
    cache = make(block_size=4)
    keep(cache, (1, 2, 3, 4, 5, 6))
    lease = cache.match((1, 2, 3, 4, 5, 6, 9))
    keep(cache, (1, 2, 3, 4, 5, 6, 7))
    assert lease.state.tokens == (1, 2, 3, 4, 5, 6)
    assert held(cache) == (3, TOKEN * (4 + 2 + 3))  # the leased end stays beside its copy
    lease.release()
    keep(cache, (1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert held(cache) == (3, TOKEN * 9)  # both took the place of what they begin with
    assert found(cache, (1, 2, 3, 4, 5, 6, 9)) == 6


def test_what_a_longer_end_serves_is_not_stored_again():
    cache = make(block_size=4)
    keep(cache, (1, 2, 3, 4, 5, 6, 7))
    before = held(cache)
    for length in range(1, 8):
        keep(cache, (1, 2, 3, 4, 5, 6, 7)[:length])
    assert held(cache) == before


def test_a_point_is_found_at_its_end_also_where_no_block_ends():
    cache = make(block_size=4)
    turns = [SYSTEM[:n] for n in (3, 4, 10, 11, 20)]
    for turn in turns:
        keep(cache, turn, recurrent)
    assert [found(cache, (*turn, 1)) for turn in turns] == [3, 4, 10, 11, 20]
    assert found(cache, (*SYSTEM[:15], 1)) == 11  # the longest point at which every layer can resume
    assert held(cache) == (5 + 3, TOKEN * (20 + 3 + 2 + 3) + SNAPSHOT * 5)


def test_a_window_that_is_not_full_goes_back_and_a_full_one_does_not():
    cache = make(block_size=4)
    keep(cache, SYSTEM[:7], windowed)
    keep(cache, SYSTEM[:20], windowed)
    assert found(cache, (*SYSTEM[:5], 1)) == 5
    assert found(cache, (*SYSTEM[:12], 1)) == 7
    assert found(cache, (*SYSTEM[:20], 1)) == 20


def test_blocks_that_lead_nowhere_go_with_the_point_they_led_to():
    cache = make(block_size=4)
    keep(cache, (*SYSTEM[:8], 1), recurrent)
    keep(cache, (*SYSTEM[:8], 2), recurrent)
    assert cache.evict(1) == TOKEN + SNAPSHOT
    cache.check()
    assert cache.evict(1) == TOKEN * 9 + SNAPSHOT
    assert held(cache) == (0, 0)


def test_the_number_of_blocks_is_a_bound_and_the_least_recently_used_goes_first():
    cache = make(block_size=4, max_blocks=4)
    for first in (1, 2, 3):
        keep(cache, (*SYSTEM[:4], first))
    assert found(cache, (*SYSTEM[:4], 1, 9)) == 5
    keep(cache, (*SYSTEM[:4], 4))
    assert cache.stats().evictions == 1
    assert [found(cache, (*SYSTEM[:4], first, 9)) for first in (1, 2, 3, 4)] == [5, 4, 5, 5]


def test_a_beginning_is_not_taken_before_what_follows_it():
    cache = make(block_size=4, max_blocks=4)
    keep(cache, SYSTEM[:12])
    assert found(cache, SYSTEM[:5]) == 4  # the beginning was used last, and its end before
    keep(cache, (1, 2, 3, 4, 5))
    assert found(cache, SYSTEM[:13]) == 8


def test_of_a_prompt_that_needs_more_blocks_than_there_are_the_beginning_is_kept():
    cache = make(block_size=4, max_blocks=3)
    keep(cache, SYSTEM[:20])
    assert found(cache, SYSTEM[:20]) == 12
    keep(cache, SYSTEM[:20])
    assert held(cache) == (3, TOKEN * 12)
    points = make(block_size=4, max_blocks=3)
    keep(points, SYSTEM[:20], recurrent)
    assert held(points) == (0, 0)


def test_an_old_point_in_the_middle_goes_before_the_end_that_is_in_use():
    cache = make(TOKEN * 12 + SNAPSHOT * 2, block_size=4)
    for end in (4, 8, 12):
        keep(cache, SYSTEM[:end], recurrent)
    assert [found(cache, (*SYSTEM[:end], 1)) for end in (12, 7, 11)] == [12, 0, 8]
    assert held(cache) == (3, TOKEN * 12 + SNAPSHOT * 2)


def test_a_point_that_was_resumed_at_or_offered_again_goes_after_those_that_were_passed():
    cache = make(TOKEN * 16 + SNAPSHOT * 3, block_size=4)
    for end in (4, 8, 12):
        keep(cache, SYSTEM[:end], recurrent)
    assert found(cache, (*SYSTEM[:4], 1)) == 4
    keep(cache, SYSTEM[:8], recurrent)
    keep(cache, SYSTEM[:16], recurrent)  # passes them all; the one at 12 is the oldest
    assert [found(cache, (*SYSTEM[:end], 1)) for end in (16, 15, 7)] == [16, 8, 4]


def test_the_point_a_lease_resumes_at_stays_and_those_before_it_may_go():
    cache = make(block_size=4)
    for end in (4, 8, 12):
        keep(cache, SYSTEM[:end], recurrent)
    lease = cache.match(SYSTEM[:12])
    assert lease.state.num_tokens == 8
    assert cache.stats().pinned_bytes == TOKEN * 8 + SNAPSHOT
    cache.clear()
    cache.check()
    assert held(cache) == (2, TOKEN * 8 + SNAPSHOT)
    lease.release()
    assert found(cache, SYSTEM[:9]) == 8


def test_where_blocks_are_wanted_no_point_in_the_middle_is_dropped():
    cache = make(block_size=4, max_blocks=4)
    for end in (4, 8, 12):
        keep(cache, SYSTEM[:end], recurrent)
    keep(cache, (1, 1), recurrent)
    assert found(cache, (*SYSTEM[:12], 1)) == 12
    keep(cache, (2, 2), recurrent)
    assert [found(cache, (*SYSTEM[:end], 1)) for end in (4, 8, 12)] == [4, 8, 12]
    assert (found(cache, (1, 1, 1)), found(cache, (2, 2, 2))) == (0, 2)


def test_of_a_conversation_that_needs_more_blocks_than_there_are_the_points_that_fit_stay():
    cache = make(block_size=4, max_blocks=3)
    for end in (4, 10, 15, 20):
        keep(cache, SYSTEM[:end], recurrent)
    assert held(cache)[0] <= 3
    assert [found(cache, (*SYSTEM[:end], 1)) for end in (4, 10, 20)] == [4, 10, 10]


def test_what_is_leased_is_not_taken_and_nothing_is_dropped_in_vain():
    cache = make(block_size=4, max_blocks=3)
    keep(cache, (1, 1, 1, 1, 1))
    keep(cache, (2, 2))
    lease = cache.match((1, 1, 1, 1, 1, 1))
    keep(cache, (3, 3, 3, 3, 3))  # two blocks: one could be taken
    assert (found(cache, (2, 2, 2)), found(cache, (3, 3, 3))) == (2, 0)
    lease.release()
    keep(cache, (3, 3, 3, 3, 3))
    assert found(cache, (3, 3, 3, 3, 3, 3)) == 5


def test_what_is_added_to_does_not_make_room_for_it():
    cache = make(100, block_size=4)
    keep(cache, SYSTEM[:8])
    keep(cache, SYSTEM[:12])
    assert found(cache, SYSTEM[:13]) == 8
    cache.clear()
    keep(cache, SYSTEM[:6])
    keep(cache, SYSTEM[:11])
    assert found(cache, SYSTEM[:12]) == 6


def test_an_end_needs_no_room_beside_the_one_whose_place_it_takes():
    cache = make(100, block_size=4, max_blocks=3)
    keep(cache, SYSTEM[:9])
    keep(cache, SYSTEM[:10])
    assert (found(cache, SYSTEM[:11]), held(cache)) == (10, (3, 100))


def test_parts_that_hold_more_than_their_share_do_not_exceed_the_budget():
    cache = make(100, block_size=4)
    keep(cache, SYSTEM[:10], padded)
    assert (found(cache, SYSTEM[:11]), held(cache)) == (4, (1, 4 * (TOKEN + 3)))


def test_a_state_larger_than_the_budget_drives_out_nothing():
    cache = make(100, block_size=4)
    keep(cache, (1,) * 5)
    keep(cache, (2,) * 11)
    assert (found(cache, (1,) * 6), found(cache, (2,) * 12)) == (5, 0)


def test_idle_prompts_have_an_eighth_of_the_blocks_at_the_cost_of_others():
    cache = make(block_size=1, max_blocks=16)
    keep(cache, tuple(range(16)))
    keep(cache, (100, 101, 102), idle=True)
    assert found(cache, (100, 101, 102, 1)) == 0
    for number in range(110, 120):
        keep(cache, (number, number), idle=True)
    assert found(cache, (*range(16), 1)) == 14
    assert [found(cache, (number, number, 1)) for number in (118, 119)] == [0, 2]
    keep(cache, (200, 201))
    assert found(cache, (119, 119, 1)) == 0
    assert found(cache, (*range(16), 1)) == 14


def test_what_idle_prompts_stored_is_a_persons_once_one_came_that_way():
    cache = make(block_size=4)
    for first in (1, 2):
        keep(cache, (first,) * 10, idle=True)
    keep(cache, (1,) * 10)
    cache.evict(TOKEN * 10)
    assert (found(cache, (1,) * 11), found(cache, (2,) * 11)) == (10, 0)


def test_an_idle_prompt_does_not_replace_a_persons_end():
    cache = make(block_size=4)
    keep(cache, (1, 2))
    keep(cache, (1, 2, 3), idle=True)
    cache.evict(1)
    assert found(cache, (1, 2, 3, 4)) == 2


@pytest.mark.parametrize(
    ("stored", "prompt", "expected"),
    [
        ((), (1, 2, 3), ("nothing is stored under this salt", 3, None, None, None, None)),
        ((5, 6, 7), (1, 2, 3), ("at token 0", 3, 0, 1, 5, 3)),
        ((1, 2, 4), (1, 2, 3, 3), ("cannot go back, and the first difference is at token 2", 4, 2, 3, 4, 3)),
        ((1, 2, 3, 4), (1, 2, 3), ("the prompt does not go beyond it", 3, 3, None, 4, 4)),
    ],
)
def test_a_miss_explains_itself(stored, prompt, expected):
    cache = make(block_size=2)
    if stored:
        keep(cache, stored, recurrent)
    assert found(cache, prompt) == 0
    miss = cache.stats().last_miss
    reason, *figures = expected
    assert reason in miss.reason
    told = [miss.prompt_tokens, miss.position, miss.prompt_token, miss.cached_token, miss.nearest_tokens]
    assert told == figures


@pytest.mark.parametrize("option", ["block_size", "max_blocks"])
@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
def test_an_option_that_is_no_number_of_anything_is_refused(option, value):
    with pytest.raises(UsageError, match=f"'{option}' of the cache policy 'paged'"):
        make(**{option: value})


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), PROMPTS, st.booleans()),
        st.tuples(st.just("match"), PROMPTS),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("evict"), st.integers(0, 100)),
        st.tuples(st.just("clear")),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from([plain, recurrent, windowed, padded]),
    block_size=st.integers(1, 5),
    max_blocks=st.integers(1, 8),
    max_bytes=st.sampled_from([None, 60, 130]),
    steps=STEPS,
)
def test_neither_blocks_nor_bytes_are_ever_more_than_allowed(kind, block_size, max_blocks, max_bytes, steps):
    cache = make(max_bytes, block_size=block_size, max_blocks=max_blocks)
    leases = []
    for name, *arguments in steps:
        before = cache.stats()
        if name == "insert":
            tokens, idle = arguments
            cache.insert(tokens, kind(tokens), idle=idle)
        elif name == "match" and (lease := cache.match(*arguments)) is not None:
            assert lease.state.tokens == arguments[0][: lease.state.num_tokens]
            leases.append((lease, lease.state.tokens))
        elif name == "release" and leases:
            lease, tokens = leases.pop(arguments[0] % len(leases))
            assert lease.state.tokens == tokens
            lease.release()
        elif name == "evict":
            freed = cache.evict(*arguments)
            assert freed >= min(arguments[0], before.nbytes - before.pinned_bytes)
        elif name == "clear":
            cache.clear()
            assert cache.stats().nbytes == before.pinned_bytes
        cache.check()
        entries, nbytes = held(cache)
        assert entries <= max_blocks
        assert max_bytes is None or nbytes <= max_bytes
        assert bool(cache.stats().pinned_bytes) == bool(leases)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.lists(PROMPTS, min_size=1, max_size=12))
def test_a_beginning_in_full_blocks_is_held_once(block_size, prompts):
    cache = make(block_size=block_size)
    for tokens in prompts:
        keep(cache, tokens)
    full = {tokens[:end] for tokens in prompts for end in range(block_size, len(tokens) + 1, block_size)}
    ends = {tokens for tokens in prompts if len(tokens) % block_size and not _goes_on(tokens, prompts)}
    assert held(cache) == (
        len(full) + len(ends),
        TOKEN * (len(full) * block_size + sum(len(tokens) % block_size for tokens in ends)),
    )


def _goes_on(tokens, prompts):
    """Whether another of the prompts begins like this one and goes on."""
    return any(len(other) > len(tokens) and other[: len(tokens)] == tokens for other in prompts)
