from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_core.api import CacheSpec
from vllm_mlx_core.testing import FakeState

SYSTEM = tuple(range(100, 140))


def make(max_bytes=None):
    return RadixCache(CacheSpec(max_bytes=max_bytes))


def keep(cache, tokens, **how):
    cache.insert(tokens, FakeState(tokens), **how)


def keep_point(cache, tokens, **how):
    cache.insert(tokens, FakeState(tokens, can_truncate=False), **how)


def keep_window(cache, tokens, *, full):
    cache.insert(tokens, FakeState(tokens, can_truncate=not full, is_windowed=True))


def found(cache, tokens, **how):
    """Return how many tokens a prompt saves."""
    lease = cache.match(tokens, **how)
    if lease is None:
        return 0
    assert lease.state.tokens == tokens[: lease.state.num_tokens]
    lease.release()
    cache.check()
    return lease.state.num_tokens


def test_what_conversations_have_in_common_is_stored_once():
    cache = make()
    for user in range(20):
        keep(cache, (*SYSTEM, user, user))
    assert cache.stats().nbytes == 10 * (len(SYSTEM) + 20 * 2)
    assert [found(cache, (*SYSTEM, user, user, 1)) for user in range(20)] == [len(SYSTEM) + 2] * 20


def test_a_conversation_that_grows_stores_what_is_new():
    cache = make()
    conversation = SYSTEM
    for turn in range(10):
        conversation += (turn,) * 5
        keep(cache, conversation)
        assert cache.stats().nbytes == 10 * len(conversation)


def test_points_share_what_is_kept_for_each_token():
    cache = make()
    turns = [SYSTEM[:n] for n in (10, 20, 30, 40)]
    for turn in turns:
        keep_point(cache, turn)
    assert cache.stats().nbytes == 10 * 40 + 5 * len(turns)
    assert [found(cache, (*turn, 1)) for turn in turns] == [10, 20, 30, 40]
    assert found(cache, (*SYSTEM[:35], 1)) == 30  # the longest point at which every layer can resume


def test_an_edit_in_the_middle_resumes_at_the_point_before_it():
    cache = make()
    for end in (10, 20, 30):
        keep_point(cache, SYSTEM[:end])
    assert found(cache, (*SYSTEM[:25], 7, 7, 7)) == 20
    keep_point(cache, (*SYSTEM[:25], 7, 7, 7))
    assert found(cache, (*SYSTEM[:25], 7, 7, 7, 8)) == 28
    assert found(cache, (*SYSTEM[:30], 8)) == 30


def test_a_window_that_is_not_full_goes_back_and_a_full_one_does_not():
    cache = make()
    keep_window(cache, SYSTEM[:10], full=False)
    assert found(cache, (*SYSTEM[:6], 1)) == 6
    keep_window(cache, SYSTEM, full=True)
    assert found(cache, (*SYSTEM[:20], 1)) == 10
    assert found(cache, (*SYSTEM, 1)) == len(SYSTEM)


@pytest.mark.parametrize("prompt", [(2, 0), (2, 0, 0, 5)])
def test_a_window_goes_back_to_where_the_prompt_leaves_its_way(prompt):
    cache = make()
    keep_window(cache, (2, 1), full=False)
    keep_window(cache, (2, 0, 0, 0), full=True)
    assert found(cache, prompt) == 1


def test_a_run_that_leads_nowhere_goes_with_the_point_it_led_to():
    cache = make()
    keep_point(cache, (*SYSTEM, 1))
    keep_point(cache, (*SYSTEM, 2))  # they part at a point that has no snapshot
    assert cache.evict(1) > 0
    cache.evict(1)
    assert (cache.stats().entries, cache.stats().nbytes) == (0, 0)
    cache.check()


def test_the_least_recently_used_end_goes_first():
    cache = make(max_bytes=10 * (len(SYSTEM) + 3))
    for user in (1, 2, 3):
        keep(cache, (*SYSTEM, user))
    assert found(cache, (*SYSTEM, 1, 9)) == len(SYSTEM) + 1
    keep(cache, (*SYSTEM, 4))
    assert [found(cache, (*SYSTEM, user, 9)) - len(SYSTEM) for user in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_an_old_point_in_the_middle_goes_before_the_end_that_is_in_use():
    cache = make(max_bytes=10 * len(SYSTEM) + 2 * 5)
    for end in (10, 20, 40):
        keep_point(cache, SYSTEM[:end])
    assert found(cache, (*SYSTEM, 1)) == 40
    assert found(cache, (*SYSTEM[:15], 1)) == 0
    assert found(cache, (*SYSTEM[:25], 1)) == 20


def test_a_beginning_is_not_dropped_while_its_end_is_leased():
    cache = make()
    keep(cache, (*SYSTEM, 1))
    keep(cache, (*SYSTEM, 2))
    lease = cache.match((*SYSTEM, 1, 9))
    cache.clear()
    assert cache.stats().nbytes == cache.stats().pinned_bytes == 10 * (len(SYSTEM) + 1)
    keep(cache, (*SYSTEM[:20], 5))  # cuts the leased run in two
    cache.check()
    assert cache.stats().pinned_bytes == 10 * (len(SYSTEM) + 1)
    lease.release()
    cache.clear()
    assert cache.stats().nbytes == 0


def test_idle_prompts_have_an_eighth_at_most_at_the_cost_of_others():
    cache = make(max_bytes=800)
    keep(cache, tuple(range(70)))
    for number in range(200, 240):
        keep(cache, (number,) * 6, idle=True)
        cache.check()
    assert found(cache, (*range(70), 1)) == 70
    assert found(cache, (239,) * 7) == 6
    keep(cache, tuple(range(300, 310)))
    assert found(cache, (239,) * 7) == 0


def test_what_idle_prompts_stored_is_a_persons_once_one_came_that_way():
    cache = make(max_bytes=800)
    keep(cache, (1,) * 10, idle=True)
    keep(cache, (1,) * 10)
    keep(cache, (2,) * 10, idle=True)
    cache.evict(1)
    assert (found(cache, (1,) * 11), found(cache, (2,) * 11)) == (10, 0)


@pytest.mark.parametrize(
    ("stored", "prompt", "expected"),
    [
        ((), (1, 2, 3), ("nothing is stored under this salt", 3, None, None, None, None)),
        ((5, 6), (1, 2, 3), ("at token 0", 3, 0, 1, 5, 2)),
        ((1, 2, 4), (1, 2, 3, 3), ("cannot go back, and the first difference is at token 2", 4, 2, 3, 4, 3)),
        ((1, 2, 3, 4), (1, 2, 3), ("the prompt does not go beyond it", 3, 3, None, 4, 4)),
    ],
)
def test_a_miss_explains_itself(stored, prompt, expected):
    cache = make()
    if stored:
        keep_point(cache, stored)
    assert found(cache, prompt) == 0
    miss = cache.stats().last_miss
    reason, *figures = expected
    assert reason in miss.reason
    told = [miss.prompt_tokens, miss.position, miss.prompt_token, miss.cached_token, miss.nearest_tokens]
    assert told == figures


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple), min_size=1, max_size=12))
def test_the_tree_holds_each_beginning_once(prompts):
    cache = make()
    for tokens in prompts:
        keep(cache, tokens)
    ordered = sorted(prompts)
    shared = sum(next((i for i, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), min(len(x), len(y)))
                 for x, y in pairwise(ordered))  # fmt: skip
    assert cache.stats().nbytes == 10 * (sum(map(len, prompts)) - shared)
    cache.check()
