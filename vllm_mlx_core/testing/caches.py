"""The conformance suite of cache policies.

class TestMyCache(CachePolicySuite):
    policy = MyCache
"""

# ruff: noqa: D102 - the names of the tests say what they check

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from vllm_mlx_core.api import CachePolicy, CacheSpec, Lease, UsageError

from ._cache_machine import KINDS, PROMPTS, CacheMachine, Kind, Tokens, check_prefix
from ._fake_codec import FakeCodec
from ._fake_state import FakeState
from ._suite import ConformanceSuite

__all__ = ["CachePolicySuite", "FakeState"]

_PROMPT = tuple(range(10, 42))


class CachePolicySuite(ConformanceSuite):
    """Whatever a policy keeps, it must answer with true prefixes, stay in its budget and keep honest books."""

    policy: ClassVar[type[CachePolicy]]
    """The policy under test."""
    options: ClassVar[Mapping[str, str]] = {}
    """Options that every policy of the suite is made with."""
    keeps_nothing: ClassVar[bool] = False
    """The policy never stores anything, by design."""
    block_size: ClassVar[int] = 1
    """A match may be shorter than possible by less than this many tokens."""

    def make(self, max_bytes: int | None = None) -> CachePolicy:
        """Return a new policy that knows the model."""
        policy = self.policy(CacheSpec(max_bytes=max_bytes, options=self.options))
        policy.attach(FakeCodec())
        return policy

    def test_an_unknown_option_is_a_usage_error(self) -> None:
        with pytest.raises(UsageError, match="no_such_option"):
            self.policy(CacheSpec(options={**self.options, "no_such_option": "1"}))

    def test_an_empty_cache_misses_and_says_why(self) -> None:
        policy = self.make()
        assert policy.match(_PROMPT) is None
        stats = policy.stats()
        assert (stats.entries, stats.nbytes, stats.hits, stats.misses) == (0, 0, 0, 1)
        assert stats.last_miss
        policy.close()

    @pytest.mark.parametrize("can_truncate", [True, False])
    def test_a_longer_prompt_finds_the_state_of_its_beginning(self, can_truncate: bool) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT, can_truncate))
        self._expect(policy, (*_PROMPT, 1, 2), len(_PROMPT))

    def test_a_stored_prompt_leaves_one_token_to_compute(self) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT))
        self._expect(policy, _PROMPT, len(_PROMPT) - 1)

    def test_a_state_that_cannot_go_back_is_not_cut(self) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT, can_truncate=False))
        for query in (_PROMPT, _PROMPT[:-1], (*_PROMPT[:-1], 1, 2)):
            assert policy.match(query) is None
            assert policy.stats().last_miss

    def test_a_prompt_that_differs_finds_the_common_beginning(self) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT))
        self._expect(policy, (*_PROMPT[:20], 1, 2, 3), 20)

    def test_salts_are_worlds_of_their_own(self) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT), salt="one")
        for salt in ("", "two"):
            assert policy.match((*_PROMPT, 1), salt=salt) is None
        self._expect(policy, (*_PROMPT, 1), len(_PROMPT), salt="one")

    def test_a_leased_entry_survives_everything(self) -> None:
        policy = self.make()
        policy.insert(_PROMPT, FakeState(_PROMPT))
        lease = self._expect(policy, (*_PROMPT, 1), len(_PROMPT), release=False)
        if lease is None:
            return
        policy.evict(1 << 40)
        policy.clear()
        policy.check()
        assert policy.stats().pinned_bytes > 0
        self._expect(policy, (*_PROMPT, 1), len(_PROMPT))
        lease.release()
        lease.release()
        policy.clear()
        stats = policy.stats()
        assert (stats.entries, stats.nbytes, stats.pinned_bytes) == (0, 0, 0)

    def test_a_state_larger_than_the_budget_is_declined_quietly(self) -> None:
        state = FakeState(_PROMPT)
        policy = self.make(max_bytes=state.nbytes - 1)
        policy.insert(_PROMPT, state)
        assert policy.stats().nbytes < state.nbytes
        policy.check()

    def test_with_room_for_all_the_longest_prefix_is_found(self) -> None:
        @settings(max_examples=60, deadline=None)
        @given(kind=KINDS, stored=st.lists(PROMPTS, max_size=6), query=PROMPTS)
        def check(kind: Kind, stored: list[Tokens], query: Tokens) -> None:
            policy = self.make()
            for tokens in stored:
                policy.insert(tokens, kind(tokens))
            longest = max((_reusable(kind(tokens), query) for tokens in stored), default=0)
            lease = policy.match(query)
            found = 0 if lease is None else check_prefix(lease.state, query)
            if self.keeps_nothing:
                assert found == 0
            else:
                assert longest - self.block_size < found <= longest, f"{longest} tokens were reusable, {found} found"
            if lease is not None:
                lease.release()
            policy.close()

        check()

    def test_random_operations_keep_the_books(self) -> None:
        suite = self
        limits = settings(max_examples=40, stateful_step_count=30, deadline=None, report_multiple_bugs=False)

        class Machine(CacheMachine):
            make = staticmethod(lambda spec: suite.make(spec.max_bytes))

        run_state_machine_as_test(Machine, settings=limits)

    def _expect(
        self, policy: CachePolicy, query: Tokens, length: int, *, salt: str = "", release: bool = True
    ) -> Lease | None:
        """Match ``query`` and assert that ``length`` tokens are saved (none by a policy that keeps nothing)."""
        lease = policy.match(query, salt=salt)
        if self.keeps_nothing:
            assert lease is None, "the policy was said to keep nothing"
            return None
        assert lease is not None, f"nothing was found: {policy.stats().last_miss}"
        assert length - self.block_size < check_prefix(lease.state, query) <= length
        assert policy.stats().pinned_bytes > 0
        if release:
            lease.release()
        return lease


def _reusable(state: FakeState, query: Tokens) -> int:
    """Return how many tokens of ``query`` a stored state can save."""
    tokens, common = state.tokens, 0
    while common < min(len(tokens), len(query)) and tokens[common] == query[common]:
        common += 1
    if state.can_truncate:
        return max(0, min(common, len(query) - 1))
    return common if common == len(tokens) < len(query) else 0
