"""Whole states of past prompts, the least recently used dropped first.

An entry is what the model had read when the state was stored. It serves every prompt that begins with its tokens, and,
if its state can go back to an earlier token, every prompt that shares a beginning with it. Entries of both kinds (plain
attention, recurrent layers) may lie side by side.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vllm_mlx_core.api import (
    TOKEN_BYTES,
    CachePolicy,
    CacheSpec,
    CacheStats,
    KVState,
    Lease,
    common_prefix,
    pack_tokens,
)

from .counters import Counters
from .idle import IDLE_SHARE
from .misses import explain
from .spec_options import positive_int, reject_unknown


class Key(NamedTuple):
    """What an entry is found by."""

    salt: str
    tokens: bytes

    @property
    def num_tokens(self) -> int:
        """Number of packed tokens."""
        return len(self.tokens) // TOKEN_BYTES


@dataclass(slots=True)
class Entry:
    """A kept state, and how many leases pin it. ``nbytes`` is what it held when it was stored.

    ``idle``: only requests that nobody waits for have stored it.
    """

    key: Key
    state: KVState
    nbytes: int
    idle: bool
    leases: int = 0

    def serves(self, tokens: bytes, common: int) -> int:
        """Return how many tokens of a prompt this entry saves if they have ``common`` tokens in common."""
        most = len(tokens) // TOKEN_BYTES - 1  # one token is always left to compute
        if self.state.can_truncate:
            return max(0, min(common, most))
        own = self.key.num_tokens
        return own if common == own <= most else 0


class EntryLease(Lease):
    """Pins one entry."""

    def __init__(self, entry: Entry, num_tokens: int) -> None:
        self.state = entry.state if num_tokens == entry.key.num_tokens else entry.state.truncate(num_tokens)
        self._entry: Entry | None = entry
        entry.leases += 1

    def release(self) -> None:
        """Unpin the entry; a second call does nothing."""
        if self._entry is not None:
            self._entry.leases -= 1
            self._entry = None


class LRUCache(CachePolicy):
    """``--cache lru[:max_entries=N]``: at most ``max_entries`` states (64) within the byte budget."""

    def __init__(self, spec: CacheSpec) -> None:
        reject_unknown("lru", spec, ("max_entries",))
        super().__init__(spec)
        self._max_entries = positive_int("lru", spec, "max_entries", 64)
        self._entries: OrderedDict[Key, Entry] = OrderedDict()  # least recently used first
        self._nbytes = 0
        self._counters = Counters()

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens ``match`` would save. Does not mutate."""
        packed = pack_tokens(tokens)
        return max((e.serves(packed, common_prefix(e.key.tokens, packed)) for e in self._salted(salt)), default=0)

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Return the longest reusable proper prefix, pinned, or None. Mutates recency and counters."""
        packed = pack_tokens(tokens)
        best: Entry | None = None
        saved = 0
        nearest: Entry | None = None
        shared = -1
        for entry in self._salted(salt):
            common = common_prefix(entry.key.tokens, packed)
            usable = entry.serves(packed, common)
            if usable > 0 and usable >= saved:  # of equals, the most recently used
                best, saved = entry, usable
            if common >= shared:
                nearest, shared = entry, common
        if best is None or saved < self.spec.min_tokens:
            closest = nearest.key.tokens if nearest is not None else None
            self._counters.miss(explain(packed, closest, max(shared, 0), self.spec.min_tokens))
            return None
        self._entries.move_to_end(best.key)
        self._counters.hit(saved)
        return EntryLease(best, saved)

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Keep ``state``, unless an entry covers it already or no room can be made. Mutates.

        An ``idle`` one makes room among its kind only, unless that has less than its share. Raises ValueError if the
        state has not read exactly ``tokens``.
        """
        if state.num_tokens != len(tokens):
            raise ValueError(f"A state of {state.num_tokens} tokens was offered for {len(tokens)}.")
        key = Key(salt, pack_tokens(tokens))
        nbytes = state.nbytes
        if not tokens or self._covered(key, state, idle=idle):
            return
        victims = self._victims(nbytes, idle=idle)
        if not self._can_fit(nbytes, victims):
            return
        if state.can_truncate:  # it serves whatever its own prefixes serve
            for entry in victims.copy():
                own = entry.idle or not idle
                if own and entry.key.salt == salt and key.tokens.startswith(entry.key.tokens):
                    victims.remove(entry)
                    self._drop(entry)
        self._make_room(nbytes, victims)
        self._entries[key] = Entry(key, state, nbytes, idle)
        self._nbytes += nbytes

    def evict(self, nbytes: int) -> int:
        """Drop unpinned entries, idle ones and then the least recently used first, until ``nbytes`` are freed.

        Return the bytes freed. Mutates.
        """
        freed = 0
        for entry in self._unpinned():
            if freed >= nbytes:
                break
            self._drop(entry)
            self._counters.evictions += 1
            freed += entry.nbytes
        return freed

    def clear(self) -> None:
        """Drop every unpinned entry. Mutates."""
        for entry in self._unpinned():
            self._drop(entry)

    def stats(self) -> CacheStats:
        """Return the counters. Does not mutate."""
        return self._counters.stats(
            entries=len(self._entries),
            nbytes=self._nbytes,
            pinned_bytes=self._pinned_bytes(),
        )

    def check(self) -> None:
        """Raise AssertionError if the books disagree with the contents."""
        held = sum(entry.nbytes for entry in self._entries.values())
        if held != self._nbytes:
            raise AssertionError(f"The books say {self._nbytes} bytes, the entries hold {held}.")
        if len(self._entries) > self._max_entries or (self.spec.max_bytes is not None and held > self.spec.max_bytes):
            raise AssertionError(f"{len(self._entries)} entries of {held} bytes are more than the budget allows.")
        for key, entry in self._entries.items():
            if entry.leases < 0 or key != entry.key or key.num_tokens != entry.state.num_tokens:
                raise AssertionError(f"The entry of {key.num_tokens} tokens is damaged.")

    def close(self) -> None:
        """Let go of every state. No call follows."""
        self._entries.clear()
        self._nbytes = 0

    def _salted(self, salt: str) -> Iterator[Entry]:
        return (entry for entry in self._entries.values() if entry.key.salt == salt)

    def _unpinned(self) -> list[Entry]:
        """Return what may be dropped, in the order in which it is."""
        return sorted((e for e in self._entries.values() if not e.leases), key=lambda e: not e.idle)

    def _victims(self, nbytes: int, *, idle: bool) -> list[Entry]:
        """Return what may be dropped for an entry of ``nbytes``, in the order in which it is."""
        if not idle:
            return self._unpinned()
        kind = [entry for entry in self._entries.values() if entry.idle]
        budget = self.spec.max_bytes
        held = sum(entry.nbytes for entry in kind) + nbytes
        if len(kind) < max(1, self._max_entries // IDLE_SHARE) and (budget is None or held <= budget // IDLE_SHARE):
            return [entry for entry in self._entries.values() if not entry.leases]
        return [entry for entry in kind if not entry.leases]

    def _pinned_bytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries.values() if entry.leases)

    def _covered(self, key: Key, state: KVState, *, idle: bool) -> bool:
        """Return whether an entry serves all that ``state`` would, and mark that entry as used, and as idle or not.

        An idle one stands for longer than another only among its kind, as it goes before. A pinned entry of the same
        tokens counts too, since it cannot be replaced.
        """
        for entry in self._salted(key.salt):
            if entry.state.can_truncate:
                stands = idle or not entry.idle or entry.key == key
                covers = stands and entry.key.tokens.startswith(key.tokens)
            else:
                stands = entry.leases > 0 or not state.can_truncate or (idle and not entry.idle)
                covers = stands and entry.key == key
            if covers:
                entry.idle = entry.idle and idle
                self._entries.move_to_end(entry.key)
                return True
        return False

    def _can_fit(self, nbytes: int, victims: list[Entry]) -> bool:
        """Return whether an entry of ``nbytes`` fits once all ``victims`` are gone."""
        budget = self.spec.max_bytes
        held = self._nbytes - sum(entry.nbytes for entry in victims)
        has_place = len(self._entries) - len(victims) < self._max_entries
        return has_place and (budget is None or held + nbytes <= budget)

    def _make_room(self, nbytes: int, victims: list[Entry]) -> None:
        """Drop as many of ``victims``, the first ones first, as an entry of ``nbytes`` needs to fit."""
        for entry in victims:
            if self._can_fit(nbytes, []):
                return
            self._drop(entry)
            self._counters.evictions += 1

    def _drop(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._nbytes -= entry.nbytes
