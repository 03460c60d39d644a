"""What may be dropped of the blocks, and in which order. Nothing here mutates."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from .paged_blocks import Block, BlockTable


class Victim(NamedTuple):
    """A block that nothing follows any more when its turn comes (``is_end``), or the snapshot at the end of one.

    While nothing follows a block, and nobody leases it, its snapshot stands for the whole of it.
    """

    block: Block
    is_end: bool


def victims(table: BlockTable, resumed: Collection[Block], *, idle_only: bool) -> list[Victim]:
    """Return what no lease needs, idle ones and then the least recently used first.

    ``resumed`` are the blocks whose snapshots are leased. No block comes before one that follows it.
    """
    candidates = [block for block in table if block.idle or not idle_only]
    snapshots = [Victim(b, is_end=False) for b in candidates if b.snapshot is not None and b not in resumed]
    ends = [Victim(b, is_end=True) for b in candidates if not b.leases]
    return sorted(snapshots + ends, key=_turn)  # keeps the table's order of those that one prompt used


def freeable(may_go: Iterable[Victim]) -> tuple[int, int]:
    """Return how many blocks, and how many bytes, get free when all of them go."""
    blocks = nbytes = 0
    for block, is_end in may_go:
        if is_end:
            blocks += 1
            nbytes += block.nbytes
        elif block.leases and block.snapshot is not None:  # of a block that stays
            nbytes += block.snapshot.nbytes
    return blocks, nbytes


def _turn(victim: Victim) -> tuple[bool, int]:
    block, is_end = victim
    return not block.idle, block.used if is_end else block.snapshot_used
