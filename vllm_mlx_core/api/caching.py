"""Prefix caching: which states of past prompts are kept, and how a new prompt finds them.

A policy is bookkeeping: it never looks inside a state and imports no MLX. All calls to one policy come from the engine
thread of one model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol


class KVState(Protocol):
    """The model's state after reading a number of tokens. Immutable: whoever uses it works on a copy."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens this state has read."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory it holds, in bytes."""
        ...

    @property
    def can_truncate(self) -> bool:
        """Whether every layer can go back to an earlier token (recurrent state and full windows cannot)."""
        ...

    def truncate(self, num_tokens: int) -> KVState:
        """Return the state after only the first ``num_tokens`` tokens. Does not mutate.

        Raises ValueError if ``can_truncate`` is false and fewer tokens are asked for, or if there are not as many.
        """
        ...


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What a policy is made from: a budget in bytes (None: no limit) and the ``k=v`` pairs after ``--cache NAME:``."""

    max_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """A policy's counters since it was made, and what it holds now. ``pinned_bytes`` are leased and not evictable."""

    entries: int = 0
    nbytes: int = 0
    pinned_bytes: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    saved_tokens: int = 0
    last_miss: str | None = None
    """Why the latest miss missed, in words that help: reason, first differing position."""


class Lease(ABC):
    """A matched prefix, pinned until released. The holder must call ``release`` exactly once; more do nothing."""

    state: KVState

    @abstractmethod
    def release(self) -> None:
        """Unpin. Mutates the policy's books."""


class CachePolicy(ABC):
    """Keeps states of past prompts. The constructor raises UsageError for an option it does not know."""

    keeps_nothing: ClassVar[bool] = False
    """True: never offer it anything, so that no state is copied for it."""

    def __init__(self, spec: CacheSpec) -> None:
        self.spec = spec

    @abstractmethod
    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Return the longest reusable proper prefix of ``tokens``, pinned, or None.

        The lease's state has read at most ``len(tokens) - 1`` tokens, so that one is left to compute. Only entries
        stored under the same ``salt`` match. Mutates recency and counters, not contents.
        """

    @abstractmethod
    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Offer the state after ``tokens`` (``state.num_tokens == len(tokens)``). Mutates; may evict or decline.

        An ``idle`` state comes from a request that nobody waited for: it goes before all others. It drives out its
        kind, and of the others no more than gives its kind a small share, without which idle requests could not share
        a beginning. Never raises for want of room. Afterwards ``stats().nbytes`` is within the budget, or only pinned
        entries are above it.
        """

    @abstractmethod
    def evict(self, nbytes: int) -> int:
        """Drop unpinned entries, least useful first, until ``nbytes`` are freed; return the bytes freed. Mutates."""

    @abstractmethod
    def clear(self) -> None:
        """Drop every unpinned entry. Mutates."""

    @abstractmethod
    def stats(self) -> CacheStats:
        """Return the counters. Does not mutate."""

    def check(self) -> None:  # noqa: B027 - a policy without books has nothing to check
        """Raise AssertionError if the books disagree with the contents. The engine calls it when idle."""

    def close(self) -> None:  # noqa: B027
        """Release files and threads. No call follows."""
