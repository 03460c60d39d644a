"""Prompts in blocks of equal size: what several have in common is stored once, and a count bounds them as bytes do.

A prompt's tokens lie in a chain of full blocks and, if they do not come out even, one of fewer tokens. A full block is
found by the hash of all that it ends; behind the last one found, the blocks that follow are compared token by token, so
that a match is as long as it can be. For models with layers that keep nothing for each token, a snapshot hangs at the
end of a block: such a prompt resumes at the last snapshot on its way, or earlier than a later one that can go back.
Those that nobody resumes at any more are dropped alone, so that a conversation's old ones do not fill the budget.

Blocks are written once. A prompt that goes on where another's last block ends gets a block of its own in which those
tokens are too, and takes the other's place unless a lease or a snapshot needs it. After the blocks of vLLM
(https://arxiv.org/abs/2309.06180), with snapshots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from vllm_mlx_core.api import (
    TOKEN_BYTES,
    CachePolicy,
    CacheSpec,
    CacheStats,
    KVState,
    Lease,
    pack_tokens,
)

from .counters import Counters
from .idle import IDLE_SHARE
from .misses import explain
from .paged_blocks import Block, BlockTable, Path
from .paged_match import Match, anywhere, at_snapshot, nearest
from .paged_victims import Victim, freeable, victims
from .spec_options import positive_int, reject_unknown

BLOCK_SIZE = 64
"""Tokens in a block, where nothing is said."""

MAX_BLOCKS = 1000
"""How many blocks there are, where nothing is said."""


class PagedLease(Lease):
    """Pins the chain of blocks that a match needs. ``register`` holds it until it is released."""

    def __init__(self, state: KVState, chain: list[Block], register: set[PagedLease]) -> None:
        self.state = state
        self.chain = chain
        self._register = register
        register.add(self)
        for block in chain:
            block.leases += 1

    def release(self) -> None:
        """Unpin; a second call does nothing."""
        if self in self._register:
            self._register.remove(self)
            for block in self.chain:
                block.leases -= 1
            self.chain.clear()


class PagedCache(CachePolicy):
    """``--cache paged[:block_size=64,max_blocks=1000]``: blocks of so many tokens, and no more than so many of them."""

    def __init__(self, spec: CacheSpec) -> None:
        reject_unknown("paged", spec, ("block_size", "max_blocks"))
        super().__init__(spec)
        block_size = positive_int("paged", spec, "block_size", BLOCK_SIZE)
        self._table = BlockTable(block_size, positive_int("paged", spec, "max_blocks", MAX_BLOCKS))
        self._leases: set[PagedLease] = set()
        self._needs_snapshot = False
        """Whether the model can resume at snapshots only."""
        self._counters = Counters()

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens ``match`` would save. Does not mutate."""
        found = self._resume(pack_tokens(tokens), salt)
        return 0 if found is None else found.num_tokens

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Return the longest reusable proper prefix, pinned, or None. Mutates recency and counters."""
        packed = pack_tokens(tokens)
        found = self._resume(packed, salt)
        if found is None or found.num_tokens < self.spec.min_tokens:
            self._counters.miss(
                explain(packed, *nearest(self._table, self._table.walk(salt, packed)), self.spec.min_tokens)
            )
            return None
        self._table.use(found.block)
        self._counters.hit(found.num_tokens)
        return PagedLease(found.state(), found.block.chain(), self._leases)

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Keep of ``state`` what no block has yet, if room can be made for it. Mutates.

        Of a prompt that needs more than ``max_blocks`` the beginning is kept, or nothing in a model that needs a
        snapshot to resume there. An ``idle`` one makes room among its kind only, unless that has less than its share.
        Raises ValueError if the state has not read exactly ``tokens``.
        """
        if state.num_tokens != len(tokens):
            raise ValueError(f"A state of {state.num_tokens} tokens was offered for {len(tokens)}.")
        if not tokens:
            return
        self._needs_snapshot = state.snapshot is not None
        path = self._table.walk(salt, pack_tokens(tokens))
        covering = self._covering(path)
        reached = covering or path.last
        if reached is not None:
            self._table.use(reached, idle=idle, passes=covering is None)
        if covering is None:
            try:
                self._extend(path, state, idle=idle)
            finally:
                self._prune(path.last)  # its snapshot may have made room for a state that could not be cut then
            self._keep_budget()

    def evict(self, nbytes: int) -> int:
        """Drop unpinned blocks and snapshots, idle ones and then the least recently used first; return the bytes freed.

        Mutates. A block is dropped only when nothing follows it.
        """
        before = self._table.nbytes
        self._free(self._victims(), 0, nbytes)
        return before - self._table.nbytes

    def clear(self) -> None:
        """Drop everything that is not pinned. Mutates."""
        evictions = self._counters.evictions
        self._free(self._victims(), len(self._table), self._table.nbytes)
        self._counters.evictions = evictions

    def stats(self) -> CacheStats:
        """Return the counters; an entry is a block. Does not mutate."""
        return self._counters.stats(
            entries=len(self._table),
            nbytes=self._table.nbytes,
            pinned_bytes=self._table.nbytes - freeable(self._victims())[1],
        )

    def check(self) -> None:
        """Raise AssertionError if the books disagree with the contents."""
        self._table.check(Counter(block for lease in self._leases for block in lease.chain))
        if self._needs_snapshot and any(map(self._leads_nowhere, self._table)):
            raise AssertionError("A block is kept that leads to no snapshot in a model that needs one.")
        if self._excess(0) > 0:
            raise AssertionError(
                f"{self._table.nbytes} bytes are more than the budget of {self.spec.max_bytes} allows."
            )

    def close(self) -> None:
        """Let go of every state. No call follows."""
        self._table = BlockTable(self._table.block_size, self._table.max_blocks)
        self._leases.clear()

    def _resume(self, packed: bytes, salt: str) -> Match | None:
        """Return where a packed prompt resumes."""
        path = self._table.walk(salt, packed[:-TOKEN_BYTES])  # one token is always left to compute
        return at_snapshot(self._table, path) if self._needs_snapshot else anywhere(self._table, path)

    def _covering(self, path: Path) -> Block | None:
        """Return a block that serves all that a state at the end of the path's rest would, or None."""
        last = path.last
        if last is not None and not path.rest:
            return last if last.snapshot is not None or not self._needs_snapshot else None
        for block in self._table.followers(path.digest):
            if block.tokens == path.rest or (block.tokens.startswith(path.rest) and not self._needs_snapshot):
                return block
        return None

    def _extend(self, path: Path, state: KVState, *, idle: bool) -> None:
        """Put what is missing of ``state`` behind the path, and its snapshot there, if room can be made."""
        table, snapshot = self._table, state.snapshot
        missing = table.cut(path.rest)
        if snapshot is None:
            del missing[table.max_blocks - path.end // table.block_size :]
        outgrown = self._outgrown(path, missing, idle=idle)
        num_missing = sum(map(len, missing)) // TOKEN_BYTES
        snapshot_bytes = 0 if snapshot is None else snapshot.nbytes
        needed = (state.nbytes - snapshot_bytes) * num_missing // state.num_tokens + snapshot_bytes - _size(outgrown)
        with _spared(path.blocks + outgrown):
            if not self._make_room(len(missing) - len(outgrown), needed, idle=idle):
                return
        starts = range(path.end, path.end + num_missing, table.block_size)
        segments = [state.segment(s, s + len(m) // TOKEN_BYTES) for s, m in zip(starts, missing, strict=True)]
        for block in outgrown:
            table.remove(block)
        digest, last = path.digest, path.last
        for tokens, segment in zip(missing, segments, strict=True):
            last = table.add(digest, last, tokens, segment, idle=idle)
            digest = last.digest
        if last is not None:
            if snapshot is not None:
                table.hang(last, snapshot)
            table.use(last)

    def _outgrown(self, path: Path, missing: list[bytes], *, idle: bool) -> list[Block]:
        """Return the blocks that follow the path and that nobody needs once what is missing is there."""
        if not missing:
            return []
        return [
            block
            for block in self._table.followers(path.digest)
            if missing[0].startswith(block.tokens)
            and block.snapshot is None
            and not block.leases
            and (block.idle or not idle)
        ]

    def _victims(self, *, idle_only: bool = False) -> list[Victim]:
        """Return what may be dropped, in the order in which it is."""
        return victims(self._table, {lease.chain[-1] for lease in self._leases}, idle_only=idle_only)

    def _make_room(self, blocks: int, nbytes: int, *, idle: bool) -> bool:
        """Drop what must go for so much more; return whether there is room then. Drops nothing in vain."""
        if self._fits(blocks, nbytes):
            return True
        may_go = self._victims(idle_only=idle and not self._within_share(blocks, nbytes))
        most_blocks, most_bytes = freeable(may_go)
        if not self._fits(blocks - most_blocks, nbytes - most_bytes):
            return False
        self._free(may_go, len(self._table) + blocks - self._table.max_blocks, self._excess(nbytes))
        return True

    def _free(self, may_go: list[Victim], blocks: int, nbytes: int) -> None:
        """Drop what may go, the first first, until so many blocks and bytes are free. Mutates.

        A snapshot goes alone only while bytes are wanted, as no block gets free by that.
        """
        table = self._table
        blocks_left, bytes_left = len(table) - blocks, table.nbytes - nbytes
        for block, is_end in may_go:
            is_too_large = table.nbytes > bytes_left
            if not is_too_large and len(table) <= blocks_left:
                break
            if block not in table:
                continue
            if is_end or not (block.leases or table.followers(block.digest)):
                self._drop(block)
            elif is_too_large:
                table.take_off(block)
                self._counters.evictions += 1

    def _fits(self, blocks: int, nbytes: int) -> bool:
        return len(self._table) + blocks <= self._table.max_blocks and self._excess(nbytes) <= 0

    def _within_share(self, blocks: int, nbytes: int) -> bool:
        """Return whether idle blocks may take so much more at the cost of others."""
        kind = [block for block in self._table if block.idle]
        budget = self.spec.max_bytes
        has_place = len(kind) + blocks <= max(1, self._table.max_blocks // IDLE_SHARE)
        return has_place and (budget is None or _size(kind) + nbytes <= budget // IDLE_SHARE)

    def _excess(self, nbytes: int) -> int:
        """Return by how much the budget would be exceeded with ``nbytes`` more; no more than 0 if it would not."""
        return 0 if self.spec.max_bytes is None else self._table.nbytes + nbytes - self.spec.max_bytes

    def _keep_budget(self) -> None:
        """Drop what is above the budget: segments may hold more than their share of the state they were cut from."""
        self.evict(max(0, self._excess(0)))

    def _drop(self, block: Block) -> None:
        """Drop a block, and those before it that lead to no snapshot in a model that needs one."""
        self._counters.evictions += 1
        self._table.remove(block)
        self._prune(block.parent)

    def _prune(self, block: Block | None) -> None:
        """Remove blocks from ``block`` backwards that lead to no snapshot in a model that needs one."""
        while self._needs_snapshot and block is not None and self._leads_nowhere(block):
            self._table.remove(block)
            block = block.parent

    def _leads_nowhere(self, block: Block) -> bool:
        return block.snapshot is None and not block.leases and not self._table.followers(block.digest)


def _size(blocks: Iterable[Block]) -> int:
    return sum(block.nbytes for block in blocks)


@contextmanager
def _spared(blocks: list[Block]) -> Iterator[None]:
    """Pin ``blocks`` meanwhile: what is being added to must not make room for it, but its snapshots may."""
    for block in blocks:
        block.leases += 1
    try:
        yield
    finally:
        for block in blocks:
            block.leases -= 1
