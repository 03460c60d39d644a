"""Random operations on a cache policy, checked after each one against all that was ever stored in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vllm_mlx_core.api import CachePolicy, CacheSpec, Lease

from ._fake_state import FakeState

Tokens = tuple[int, ...]


def plain(tokens: Tokens) -> FakeState:
    """Return a state of a model that is all attention."""
    return FakeState(tokens)


def recurrent(tokens: Tokens) -> FakeState:
    """Return a state of a model that has recurrent layers."""
    return FakeState(tokens, can_truncate=False)


def windowed(tokens: Tokens) -> FakeState:
    """Return a state of a model with sliding windows of ``WINDOW`` tokens."""
    return FakeState(tokens, can_truncate=len(tokens) < WINDOW, is_windowed=True)


WINDOW = 4
PROMPTS: st.SearchStrategy[Tokens] = st.lists(st.integers(0, 2), max_size=9).map(tuple)
Kind = Callable[[Tokens], FakeState]
KINDS: st.SearchStrategy[Kind] = st.sampled_from([plain, recurrent, windowed])
_SALTS = st.sampled_from(["", "tenant"])
_BUDGETS = st.sampled_from([None, 0, 45, 90, 250])


def check_prefix(state: object, query: Tokens) -> int:
    """Assert that ``state`` stands for a proper prefix of ``query``, and return its length."""
    assert isinstance(state, FakeState), f"the lease's state is no stored one, but {state!r}"
    assert state.tokens == query[: state.num_tokens], f"{query} was answered with the state of {state.tokens}"
    assert 0 < state.num_tokens < len(query), f"{state.num_tokens} of {len(query)} tokens leave nothing to compute"
    return state.num_tokens


class CacheMachine(RuleBasedStateMachine):
    """The naive model: a list of everything stored, and counters."""

    make: Callable[[CacheSpec], CachePolicy]

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[tuple[str, Tokens]] = []
        self.leases: list[tuple[Lease, Any]] = []
        self.calls = self.hits = self.saved = 0

    @initialize(max_bytes=_BUDGETS, kind=KINDS)
    def start(self, max_bytes: int | None, kind: Kind) -> None:
        """Make an empty policy for a model whose states are of one kind."""
        self.kind = kind
        self.max_bytes = max_bytes
        self.policy = type(self).make(CacheSpec(max_bytes=max_bytes))

    @rule(tokens=PROMPTS, salt=_SALTS, idle=st.booleans())
    def insert(self, tokens: Tokens, salt: str, idle: bool) -> None:
        """Store a state."""
        self.policy.insert(tokens, self.kind(tokens), salt=salt, idle=idle)
        self.stored.append((salt, tokens))
        stats = self.policy.stats()
        if self.max_bytes is not None and stats.nbytes > self.max_bytes:
            assert stats.nbytes == stats.pinned_bytes, "the budget is exceeded by entries that nobody pins"

    @rule(tokens=PROMPTS, salt=_SALTS)
    def match(self, tokens: Tokens, salt: str) -> None:
        """Look a prompt up and keep the lease."""
        before = self.policy.stats()
        foreseen = self.policy.reusable(tokens, salt=salt)
        assert self.policy.stats() == before, "asking what is reusable changed something"
        lease = self.policy.match(tokens, salt=salt)
        after = self.policy.stats()
        assert (after.entries, after.nbytes) == (before.entries, before.nbytes), "match changed what is stored"
        self.calls += 1
        if lease is None:
            assert foreseen == 0, f"{foreseen} tokens were said to be reusable, and none was found"
            assert after.last_miss, "a miss was not explained"
            return
        length = check_prefix(lease.state, tokens)
        assert foreseen in (0, length), f"{foreseen} tokens were said to be reusable, and {length} were found"
        assert any(s == salt and t[:length] == tokens[:length] for s, t in self.stored), "the match is of another salt"
        assert after.pinned_bytes > 0, "a leased entry is not pinned"
        self.hits += 1
        self.saved += length
        self.leases.append((lease, lease.state))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Let go of a lease, sometimes twice."""
        if self.leases:
            lease, state = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
            assert lease.state == state, "a leased state changed"
            for _ in range(data.draw(st.integers(1, 2))):
                lease.release()

    @rule(nbytes=st.integers(0, 150))
    def evict(self, nbytes: int) -> None:
        """Ask for bytes."""
        before = self.policy.stats()
        freed = self.policy.evict(nbytes)
        after = self.policy.stats()
        assert freed == before.nbytes - after.nbytes, f"evict said {freed}, but freed {before.nbytes - after.nbytes}"
        assert freed >= min(nbytes, before.nbytes - before.pinned_bytes), "evict freed too little"
        assert after.pinned_bytes == before.pinned_bytes, "evict changed what is pinned"

    @rule()
    def clear(self) -> None:
        """Drop what is not pinned."""
        self.policy.clear()
        stats = self.policy.stats()
        assert stats.nbytes == stats.pinned_bytes, "clear left entries that nobody pins"

    @invariant()
    def books_agree(self) -> None:
        """The policy's own check passes, and its counters are ours."""
        if not hasattr(self, "policy"):
            return
        self.policy.check()
        stats = self.policy.stats()
        assert (stats.hits, stats.misses) == (self.hits, self.calls - self.hits), "hits or misses are miscounted"
        assert stats.saved_tokens == self.saved, "saved tokens are miscounted"
        assert 0 <= stats.pinned_bytes <= stats.nbytes, "more is pinned than stored"
        assert bool(stats.entries) == bool(stats.nbytes), "there are bytes without entries, or entries without bytes"
        if not self.leases:
            assert stats.pinned_bytes == 0, "something is pinned without a lease"

    def teardown(self) -> None:
        """Everything can be let go of."""
        if not hasattr(self, "policy"):
            return
        for lease, _ in self.leases:
            lease.release()
        self.policy.clear()
        stats = self.policy.stats()
        assert (stats.entries, stats.nbytes, stats.pinned_bytes) == (0, 0, 0), "clear left something"
        self.policy.close()
