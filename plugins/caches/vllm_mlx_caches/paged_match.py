"""Where a prompt resumes among the blocks, and which prompt it comes nearest to. Nothing here mutates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vllm_mlx_core.api import KVSnapshot, KVState, common_prefix

from .paged_blocks import Block, BlockTable, Path


class Match(NamedTuple):
    """Where a prompt resumes: after so many tokens, which lie in the chain of ``block`` from its beginning.

    ``snapshot`` is that of this point or of a later one, and None in a model that needs none.
    """

    num_tokens: int
    block: Block
    snapshot: KVSnapshot | None

    def state(self) -> KVState:
        """Return the state at this point, joined of what it needs of the chain."""
        segments = []
        for block in self.block.chain():
            wanted = self.num_tokens - block.start
            if wanted <= 0:
                break
            segments.append(block.segment if wanted >= block.num_tokens else block.segment.part(0, wanted))
        snapshot = self.snapshot
        if snapshot is not None and snapshot.num_tokens > self.num_tokens:
            snapshot = snapshot.truncate(self.num_tokens)
        return segments[0].join(segments[1:], snapshot)


def anywhere(table: BlockTable, path: Path) -> Match | None:
    """Return where a prompt resumes that can do so at any token: as far as it is that of some block."""
    block, shared = _closest(table, path)
    return None if block is None else Match(path.end + shared, block, None)


def at_snapshot(table: BlockTable, path: Path) -> Match | None:
    """Return where a prompt resumes that needs a snapshot: at one, or before one that can go back."""
    seen: Block | None = None
    for part in path.steps_back():
        found = max(_snapshots(table, part, seen), key=lambda match: match.num_tokens, default=None)
        if found is not None:
            return found
        seen = part.last
    return None


def nearest(table: BlockTable, path: Path) -> tuple[bytes | None, int]:
    """Return the tokens that come nearest to a prompt that goes this way, and how many of them it shares."""
    block, shared = _closest(table, path)
    end = path.digest if block is None else block.digest
    while followers := table.followers(end):
        *_, block = followers
        end = block.digest
    return (None if block is None else b"".join(each.tokens for each in block.chain())), path.end + shared


def _snapshots(table: BlockTable, path: Path, seen: Block | None) -> Iterator[Match]:
    """Yield where a prompt can resume from the path's end to that of a block behind it; ``seen`` is left out."""
    last = path.last
    if last is not None and last.snapshot is not None:
        yield Match(path.end, last, last.snapshot)
    for block in table.followers(path.digest):
        if block is seen:
            continue
        shared = common_prefix(block.tokens, path.rest)
        if shared == block.num_tokens and block.snapshot is not None:
            yield Match(block.end, block, block.snapshot)
        elif path.end + shared:
            for each in table.following(block):
                if each.snapshot is not None and each.snapshot.can_truncate:
                    yield Match(path.end + shared, each, each.snapshot)
                    break


def _closest(table: BlockTable, path: Path) -> tuple[Block | None, int]:
    """Return the block that shares most tokens with a path's rest, of equals the latest, and how many it shares.

    If none shares any, it is the last of the path.
    """
    closest, most = path.last, 0
    for block in table.followers(path.digest):
        shared = common_prefix(block.tokens, path.rest)
        if shared and shared >= most:
            closest, most = block, shared
    return closest, most
