"""A tree of prompts: what several have in common is stored once.

Each node holds the segment of a run of tokens, and, for models with layers that keep nothing for each token, perhaps a
snapshot of the point where the run ends. A prompt can resume anywhere on its path if the model needs no snapshot, else
at the deepest snapshot on it, or earlier than a deeper one that can go back. After the radix tree of SGLang
(https://arxiv.org/abs/2312.07104), with snapshots.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

from vllm_mlx_core.api import (
    TOKEN_BYTES,
    CachePolicy,
    CacheSpec,
    CacheStats,
    KVSnapshot,
    KVState,
    Lease,
    pack_tokens,
)

from .counters import Counters
from .idle import IDLE_SHARE
from .misses import explain
from .radix_node import Node, Walk, split, subtree, walk
from .spec_options import reject_unknown


class RadixLease(Lease):
    """Pins the node that a match ends in, and so all above it."""

    def __init__(self, state: KVState, node: Node) -> None:
        self.state = state
        self._node: Node | None = node
        node.leases += 1

    def release(self) -> None:
        """Unpin; a second call does nothing."""
        if self._node is not None:
            self._node.leases -= 1
            self._node = None


class _Match(NamedTuple):
    """Where a prompt resumes: after so many tokens, pinned by ``node``, which is on the path or below it."""

    num_tokens: int
    node: Node
    snapshot: KVSnapshot | None


class RadixCache(CachePolicy):
    """``--cache radix``. Takes no options; the byte budget is its only bound."""

    def __init__(self, spec: CacheSpec) -> None:
        reject_unknown("radix", spec, ())
        super().__init__(spec)
        self._roots: dict[str, Node] = {}
        self._clock = count(1)
        self._nbytes = 0
        self._counters = Counters()

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens ``match`` would save. Does not mutate."""
        root = self._roots.get(salt)
        found = None if root is None else _resume(walk(root, pack_tokens(tokens)), len(tokens) - 1)
        return 0 if found is None else found.num_tokens

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Return the longest reusable proper prefix, pinned, or None. Mutates recency and counters."""
        packed = pack_tokens(tokens)
        root = self._roots.get(salt)
        path = walk(root, packed) if root is not None else None
        found = _resume(path, len(tokens) - 1) if path is not None else None
        if path is None or found is None or found.num_tokens < self.spec.min_tokens:
            self._counters.miss(explain(packed, *_nearest(path), self.spec.min_tokens))
            return None
        now = next(self._clock)
        for node in path.nodes:
            node.used = now
        found.node.used = found.node.snapshot_used = now
        self._counters.hit(found.num_tokens)
        return RadixLease(_state(path, found), found.node)

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Keep of ``state`` what the tree does not have yet, if room can be made for it. Mutates.

        An ``idle`` one makes room among its kind only, unless that has less than its share. Raises ValueError if the
        state has not read exactly ``tokens``.
        """
        if state.num_tokens != len(tokens):
            raise ValueError(f"A state of {state.num_tokens} tokens was offered for {len(tokens)}.")
        if not tokens:
            return
        packed = pack_tokens(tokens)
        root = self._roots.setdefault(salt, Node())
        path = walk(root, packed)
        self._use(path, idle=idle)
        snapshot = state.snapshot
        if path.length == len(tokens) and (snapshot is None or path.ends_with_snapshot):
            if snapshot is not None:
                path.last.snapshot_used = path.last.used
            return
        before = 0 if path.last is root else path.last.segment.nbytes
        end = split(path)
        if end is not path.last:
            self._nbytes += end.segment.nbytes + path.last.segment.nbytes - before
        end.grows = True  # what is being added to must not make room for it, but its snapshot may
        try:
            self._add(end, packed, state, idle=idle)
        finally:
            end.grows = False
            self._prune(end)
            if not root.children:
                del self._roots[salt]

    def evict(self, nbytes: int) -> int:
        """Drop unpinned runs and snapshots, idle ones and then the least recently used first; return the bytes freed.

        Mutates. A run is dropped only when nothing follows it.
        """
        return self._free(nbytes, idle_only=False)

    def clear(self) -> None:
        """Drop everything that is not pinned. Mutates."""
        evictions = self._counters.evictions
        self._free(self._nbytes, idle_only=False)
        self._counters.evictions = evictions

    def stats(self) -> CacheStats:
        """Return the counters; an entry is a run of tokens. Does not mutate."""
        return self._counters.stats(
            entries=sum(1 for _ in self._nodes()),
            nbytes=self._nbytes,
            pinned_bytes=self._nbytes - self._freeable(),
        )

    def check(self) -> None:
        """Raise AssertionError if the books disagree with the contents."""
        held = 0
        for node in self._nodes():
            held += node.nbytes
            parent = node.parent
            if parent is None or parent.children.get(node.key[:TOKEN_BYTES]) is not node:
                raise AssertionError(f"A run of {node.num_tokens} tokens is not where it is looked for.")
            if node.num_tokens != node.segment.num_tokens or node.end != parent.end + node.num_tokens:
                raise AssertionError(f"A run of {node.num_tokens} tokens that ends at {node.end} is damaged.")
            if node.leases < 0 or (node.snapshot is not None and node.snapshot.num_tokens != node.end):
                raise AssertionError(f"The end of a run at {node.end} is damaged.")
        if held != self._nbytes:
            raise AssertionError(f"The books say {self._nbytes} bytes, the tree holds {held}.")
        if self.spec.max_bytes is not None and held > self.spec.max_bytes:
            raise AssertionError(f"{held} bytes are more than the budget of {self.spec.max_bytes} allows.")

    def close(self) -> None:
        """Let go of every state. No call follows."""
        self._roots.clear()
        self._nbytes = 0

    def _nodes(self) -> Iterator[Node]:
        for root in self._roots.values():
            yield from subtree(root)

    def _use(self, path: Walk, *, idle: bool) -> None:
        """Note that a request went this way."""
        now = next(self._clock)
        for node in path.nodes:
            node.used = now
            node.idle = node.idle and idle

    def _add(self, end: Node, packed: bytes, state: KVState, *, idle: bool) -> None:
        """Hang what is missing below ``end``, which must not be dropped meanwhile, or its snapshot on it."""
        snapshot = state.snapshot
        snapshot_bytes = 0 if snapshot is None else snapshot.nbytes
        missing = state.num_tokens - end.end
        needed = (state.nbytes - snapshot_bytes) * missing // state.num_tokens + snapshot_bytes
        if not self._make_room(needed, idle=idle):
            return
        now = next(self._clock)
        if missing:
            key, segment = packed[end.end * TOKEN_BYTES :], state.segment(end.end, state.num_tokens)
            node = end.append(key, segment)
            node.used, node.idle, node.needs_snapshot = now, idle, snapshot is not None
            self._nbytes += segment.nbytes
        else:
            node = end
        if snapshot is not None:
            node.snapshot, node.snapshot_used = snapshot, now
            self._nbytes += snapshot_bytes

    def _make_room(self, nbytes: int, *, idle: bool) -> bool:
        """Drop what must go for ``nbytes`` more; return whether there is room then. Drops nothing in vain."""
        budget = self.spec.max_bytes
        if budget is None:
            return True
        excess = self._nbytes + nbytes - budget
        if excess <= 0:
            return True
        idle_only = idle and self._idle_bytes() + nbytes > budget // IDLE_SHARE
        if excess > self._freeable(idle_only=idle_only):
            return False
        self._free(excess, idle_only=idle_only)
        return True

    def _idle_bytes(self) -> int:
        return sum(node.nbytes for node in self._nodes() if node.idle)

    def _freeable(self, *, idle_only: bool = False) -> int:
        """Return the bytes of all that may be dropped."""
        unpinned = chain.from_iterable(map(_unpinned, self._roots.values()))
        return sum(nbytes for node, nbytes in unpinned if node.idle or not idle_only)

    def _free(self, nbytes: int, *, idle_only: bool) -> int:
        """Drop what may be dropped, least useful first, until ``nbytes`` are freed; return how many were."""
        before = self._nbytes
        order = count()
        heap = [(not node.idle, _last_use(node), next(order), node) for node in self._nodes() if _droppable(node)]
        heapq.heapify(heap)
        while heap and before - self._nbytes < nbytes:
            is_somebodys, _, _, node = heapq.heappop(heap)
            if idle_only and is_somebodys:
                break
            if not _droppable(node):
                continue
            self._counters.evictions += 1
            parent = self._drop(node)
            if parent is not None and _droppable(parent):
                heapq.heappush(heap, (not parent.idle, _last_use(parent), next(order), parent))
        return before - self._nbytes

    def _drop(self, node: Node) -> Node | None:
        """Drop a run that nothing follows, or else the snapshot at its end; return the run that may go next."""
        if node.children or node.grows:
            self._drop_snapshot(node)
            return None
        is_bare = node.snapshot is None
        self._drop_snapshot(node)
        parent = self._remove(node)
        return parent if is_bare else self._prune(parent)

    def _drop_snapshot(self, node: Node) -> None:
        if node.snapshot is not None:
            self._nbytes -= node.snapshot.nbytes
            node.snapshot = None

    def _remove(self, node: Node) -> Node:
        parent = node.detach()
        self._nbytes -= node.segment.nbytes
        return parent

    def _prune(self, node: Node) -> Node:
        """Remove runs from ``node`` upwards that lead to no snapshot in a model that needs one; return what is left."""
        while node.parent is not None and node.needs_snapshot and node.is_useless:
            node = self._remove(node)
        return node


def _resume(path: Walk, most: int) -> _Match | None:
    """Return where a prompt of ``most + 1`` tokens that goes this way resumes, or None.

    A window that is not full yet goes back to where the prompt leaves its way, which may be before the last run.
    """
    reach = min(path.length, most)
    if reach <= 0:
        return None
    last = path.last
    if not last.needs_snapshot:
        return _Match(reach, last, None)
    seen: Node | None = None
    for node in reversed(path.nodes):
        point = min(reach, node.end)
        if point <= node.start:
            continue
        if node.snapshot is not None and node.end == point:
            return _Match(point, node, node.snapshot)
        for below in subtree(node, without=seen):
            if below.snapshot is not None and below.snapshot.can_truncate:
                return _Match(point, below, below.snapshot.truncate(point))
        seen = node
    return None


def _state(path: Walk, found: _Match) -> KVState:
    """Join what a match needs of its path."""
    segments = []
    for node in path.nodes:
        if node.start >= found.num_tokens:
            break
        wanted = found.num_tokens - node.start
        segments.append(node.segment if wanted >= node.num_tokens else node.segment.part(0, wanted))
    return segments[0].join(segments[1:], found.snapshot)


def _nearest(path: Walk | None) -> tuple[bytes | None, int]:
    """Return the tokens that come nearest to a prompt that goes this way, and how many of them it shares."""
    if path is None:
        return None, 0
    last = path.last
    if path.length == last.end and last.children:  # it parts between two runs: look into the latest
        last = max(last.children.values(), key=lambda node: node.used)
    keys = []
    node: Node | None = last
    while node is not None:
        keys.append(node.key)
        node = node.parent
    return b"".join(reversed(keys)), path.length


def _droppable(node: Node) -> bool:
    """Return whether a run, or else the snapshot at its end, may be dropped."""
    is_end = not node.children and not node.grows
    return node.parent is not None and not node.leases and (is_end or node.snapshot is not None)


def _last_use(node: Node) -> int:
    return node.snapshot_used if node.children or node.snapshot is not None else node.used


def _unpinned(root: Node) -> Iterator[tuple[Node, int]]:
    """Yield the runs below ``root``, and how many bytes of each may be dropped."""
    pinned: set[int] = set()
    for node in reversed(list(subtree(root))):  # what follows a run comes before it
        snapshot_bytes = 0 if node.snapshot is None or node.leases else node.snapshot.nbytes
        if node.leases or node.grows or any(id(child) in pinned for child in node.children.values()):
            pinned.add(id(node))
            yield node, snapshot_bytes
        else:
            yield node, node.nbytes
