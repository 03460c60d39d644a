"""Prefix caching: which states of past prompts are kept, and how a new prompt finds them.

A state is made of two things. What attention keeps for each token can be divided anywhere: a *segment* is that of some
consecutive tokens. What recurrent layers and sliding windows keep exists for one point only: a *snapshot*. A policy may
keep whole states, or take them apart, store what several have in common once, and join the parts again.

A policy is bookkeeping: it never looks inside a state and imports no MLX. All calls to one policy come from the engine
thread of one model, and all states that it is offered are of that model: ``snapshot`` is None for all of them or for
none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from .state_codec import StateCodec


class KVSegment(Protocol):
    """What consecutive tokens added to the layers that keep something for each token. Immutable.

    Of a model without such layers it holds no bytes, and is worth as much.
    """

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory it holds, in bytes: its own, shared with nothing."""
        ...

    def part(self, start: int, stop: int) -> KVSegment:
        """Return that of its tokens ``start`` to ``stop``, in memory of its own. Does not mutate.

        Raises ValueError unless ``0 <= start < stop <= num_tokens``.
        """
        ...

    def join(self, after: Sequence[KVSegment], snapshot: KVSnapshot | None) -> KVState:
        """Return the state after this segment, which begins at token 0, and those that follow it. Does not mutate.

        Raises ValueError if ``snapshot`` is of another point than the last segment's end, or is missing where the
        model needs one.
        """
        ...


class KVSnapshot(Protocol):
    """What layers that keep nothing for each token held after ``num_tokens`` tokens. Immutable."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens read at this point."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory it holds, in bytes."""
        ...

    @property
    def can_truncate(self) -> bool:
        """Whether it can go back to an earlier point (a sliding window that is not full yet can)."""
        ...

    def truncate(self, num_tokens: int) -> KVSnapshot:
        """Return the snapshot of an earlier point. Does not mutate; raises ValueError if it cannot."""
        ...


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
        """Whether every layer can go back to an earlier token: there is no snapshot, or it can."""
        ...

    @property
    def snapshot(self) -> KVSnapshot | None:
        """What exists only at this point; None if the model keeps something for each token in every layer."""
        ...

    def truncate(self, num_tokens: int) -> KVState:
        """Return the state after only the first ``num_tokens`` tokens. Does not mutate.

        Raises ValueError if ``can_truncate`` is false and fewer tokens are asked for, or if there are not as many.
        """
        ...

    def segment(self, start: int, stop: int) -> KVSegment:
        """Return what the tokens ``start`` to ``stop`` added, in memory of its own. Does not mutate.

        Raises ValueError unless ``0 <= start < stop <= num_tokens``.
        """
        ...


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """What a policy is made from: a budget in bytes (None: no limit) and the ``k=v`` pairs after ``--cache NAME:``."""

    max_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    over: CachePolicy | None = None
    """The policy that ``over=NAME[:k=v,…]``, the last of the pairs, names. It is the new one's to attach and close."""
    min_tokens: int = 1
    """The fewest tokens that are worth a match: shorter ones are misses, and count as such."""


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """Why a look-up found nothing."""

    reason: str
    """In words that help."""
    prompt_tokens: int
    position: int | None = None
    """How many tokens the prompt and the nearest entry have in common; None if there is no entry."""
    prompt_token: int | None = None
    """The prompt's token at ``position``, the first that differs; None if the prompt ends there."""
    cached_token: int | None = None
    """The nearest entry's token at ``position``; None if the entry ends there."""
    nearest_tokens: int | None = None
    """Length of the nearest entry; None if there is none."""


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
    last_miss: CacheMiss | None = None
    """Why the latest miss missed."""
    stored_bytes: int = 0
    """What a slower place, such as a disk, holds for this process and others."""
    fetched_tokens: int = 0
    """Tokens whose states came from there."""
    unstored_parts: int = 0
    """Parts of states that did not get there: it did not keep up, or refused them."""


class Lease(ABC):
    """A matched prefix, pinned until released. The holder must call ``release`` exactly once; more do nothing."""

    state: KVState

    @abstractmethod
    def release(self) -> None:
        """Unpin. Mutates the policy's books."""


class Fetch(ABC):
    """Something that is on its way from a slower place. Whoever asked for it calls ``keep`` or ``cancel``, once."""

    future: Future[Any]
    """Done when there is no more to wait for, whether or not anything was found. Any thread may complete it."""

    @abstractmethod
    def keep(self) -> None:
        """Put what has arrived where ``match`` finds it. Engine thread, once ``future`` is done. Mutates the policy."""

    @abstractmethod
    def cancel(self) -> None:
        """Say that nobody waits for it any more. Engine thread, at any time. Mutates the policy."""


class CachePolicy(ABC):
    """Keeps states of past prompts. The constructor raises UsageError for an option it does not know."""

    keeps_nothing: ClassVar[bool] = False
    """True: never offer it anything, so that no state is copied for it."""
    is_cover: ClassVar[bool] = False
    """True: it works over another policy, ``spec.over``, if one is named."""

    def __init__(self, spec: CacheSpec) -> None:
        self.spec = spec

    def attach(self, codec: StateCodec | None) -> None:  # noqa: B027 - most policies keep states in memory only
        """Hear how states become bytes; None: nobody can say which model they are of.

        Called once, when the model is loaded, before anything is matched or offered.
        """

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens ``match`` would save, or 0 if only ``match`` can say that. Does not mutate."""
        return 0

    def fetch(self, tokens: Sequence[int], *, salt: str = "", idle: bool = False) -> Fetch | None:
        """Begin to bring what a ``match`` could use from a slower place; None: there is nothing to wait for.

        The engine calls it when a request arrives, and lets the request wait until the fetch is done, but not for long.
        Must not wait for files or the network. May mutate, but not what ``match`` finds.
        """
        return None

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
        """Drop every unpinned entry, and what a slower place holds of this model. Mutates."""

    @abstractmethod
    def stats(self) -> CacheStats:
        """Return the counters. Does not mutate."""

    def check(self) -> None:  # noqa: B027 - a policy without books has nothing to check
        """Raise AssertionError if the books disagree with the contents. The engine calls it when idle."""

    def close(self) -> None:  # noqa: B027
        """Release files and threads. No call follows."""
