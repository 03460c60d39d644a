"""The cache suite catches policies that are wrong in one way each."""

import dataclasses

import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheStats
from vllm_mlx_core.testing import CachePolicySuite


class ForgetsSalts(LRUCache):
    def match(self, tokens, *, salt=""):
        return super().match(tokens)

    def insert(self, tokens, state, *, salt="", idle=False):
        super().insert(tokens, state, idle=idle)


class LeavesNothingToCompute(LRUCache):
    def match(self, tokens, *, salt=""):
        return super().match((*tokens, 0), salt=salt)


class IgnoresItsBudget(LRUCache):
    def _can_fit(self, nbytes, victims):
        return True

    def _make_room(self, nbytes, victims):
        pass

    def check(self):
        pass


class NeverPins(LRUCache):
    def match(self, tokens, *, salt=""):
        lease = super().match(tokens, salt=salt)
        if lease is not None:
            lease.release()
        return lease


class EvictsPinned(LRUCache):
    def _unpinned(self):
        return list(self._entries.values())


class LiesAboutBytesFreed(LRUCache):
    def evict(self, nbytes):
        return super().evict(nbytes) + 1


class MiscountsHits(LRUCache):
    def stats(self):
        stats = super().stats()
        return CacheStats(
            entries=stats.entries, nbytes=stats.nbytes, pinned_bytes=stats.pinned_bytes, misses=stats.misses
        )


class SwallowsOptions(LRUCache):
    def __init__(self, spec):
        super().__init__(type(spec)(max_bytes=spec.max_bytes))


class FindsTheFirstNotTheLongest(LRUCache):
    def insert(self, tokens, state, *, salt="", idle=False):
        if not self._entries:
            super().insert(tokens, state, salt=salt, idle=idle)


class SilentAboutMisses(LRUCache):
    def stats(self):
        return dataclasses.replace(super().stats(), last_miss=None)


def fails(policy, name, **attributes):
    """Return whether ``policy`` fails one test of the suite."""
    suite = type("Suite", (CachePolicySuite,), {"policy": policy, **attributes})()
    test = getattr(suite, name)
    try:
        if name == "test_a_longer_prompt_finds_the_state_of_its_beginning":
            test(can_truncate=True)
            test(can_truncate=False)
        else:
            test()
    except (AssertionError, ValueError, pytest.fail.Exception):
        return True
    return False


TESTS = [name for name in dir(CachePolicySuite) if name.startswith("test_")]


@pytest.mark.parametrize(
    ("policy", "caught_by"),
    [
        (ForgetsSalts, "test_salts_are_worlds_of_their_own"),
        (LeavesNothingToCompute, "test_a_stored_prompt_leaves_one_token_to_compute"),
        (IgnoresItsBudget, "test_a_state_larger_than_the_budget_is_declined_quietly"),
        (NeverPins, "test_a_leased_entry_survives_everything"),
        (EvictsPinned, "test_a_leased_entry_survives_everything"),
        (LiesAboutBytesFreed, "test_random_operations_keep_the_books"),
        (MiscountsHits, "test_random_operations_keep_the_books"),
        (SwallowsOptions, "test_an_unknown_option_is_a_usage_error"),
        (FindsTheFirstNotTheLongest, "test_with_room_for_all_the_longest_prefix_is_found"),
        (SilentAboutMisses, "test_an_empty_cache_misses_and_says_why"),
    ],
)
def test_a_wrong_policy_is_caught(policy, caught_by):
    assert fails(policy, caught_by)
    assert not fails(policy.__base__, caught_by)


@pytest.mark.parametrize("name", TESTS)
def test_a_policy_that_keeps_nothing_passes_what_is_left(name):
    assert not fails(OffCache, name, keeps_nothing=True)


def test_a_policy_that_says_it_keeps_nothing_must_keep_nothing():
    assert fails(LRUCache, "test_a_stored_prompt_leaves_one_token_to_compute", keeps_nothing=True)


def test_a_policy_that_keeps_nothing_must_say_so():
    assert fails(OffCache, "test_a_stored_prompt_leaves_one_token_to_compute")
