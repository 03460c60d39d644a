"""Blocks of tokens, found by the hash of all that leads to them.

A block's digest is that of the digest before it and of its own tokens, the first of a prompt following the digest of
its salt; so one look-up compares a whole beginning, and a block can be found only behind what it was computed behind.
The digests are cryptographic, as clients choose tokens and salts: that two beginnings have the same one is not reckoned
with.

Every block but the last of a prompt is full. Nothing follows a block that is not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count

from vllm_mlx_core.api import TOKEN_BYTES, KVSegment, KVSnapshot

_DIGEST_BYTES = 32


@dataclass(slots=True, eq=False)
class Block:
    """What a model holds of up to ``block_size`` tokens, and, if it needs one to resume there, perhaps of their end."""

    number: int
    before: bytes
    """The digest that it follows: the parent's, or that of a salt."""
    digest: bytes
    parent: Block | None
    tokens: bytes
    start: int
    """How many tokens come before the block."""
    segment: KVSegment
    idle: bool
    """Whether only requests that nobody waits for came this way."""
    snapshot: KVSnapshot | None = None
    used: int = 0
    """When a prompt came to the block, or to one that follows it, in ticks."""
    snapshot_used: int = 0
    """When the snapshot was stored, offered again or resumed at."""
    leases: int = 0
    """How many leases need the block, or one that follows it."""

    @property
    def num_tokens(self) -> int:
        """Number of its own tokens."""
        return len(self.tokens) // TOKEN_BYTES

    @property
    def end(self) -> int:
        """How many tokens a prompt has that ends with the block."""
        return self.start + self.num_tokens

    @property
    def nbytes(self) -> int:
        """Memory of the block and its snapshot, in bytes."""
        return self.segment.nbytes + (0 if self.snapshot is None else self.snapshot.nbytes)

    def chain(self) -> list[Block]:
        """Return the blocks of the prompt that ends with this one, the first one first. Does not mutate."""
        blocks = []
        block: Block | None = self
        while block is not None:
            blocks.append(block)
            block = block.parent
        return blocks[::-1]


@dataclass(frozen=True, slots=True)
class Path:
    """The full blocks that a prompt begins with, given by the last of them, and what of it is in none of them."""

    root: bytes
    """The digest of its salt."""
    last: Block | None
    rest: bytes

    @property
    def blocks(self) -> list[Block]:
        """The blocks, the first one first."""
        return [] if self.last is None else self.last.chain()

    @property
    def digest(self) -> bytes:
        """The digest that the rest follows."""
        return self.root if self.last is None else self.last.digest

    @property
    def end(self) -> int:
        """How many tokens come before the rest."""
        return 0 if self.last is None else self.last.end

    def steps_back(self) -> Iterator[Path]:
        """Yield this path, and then, the longest first, each that leads to one of its blocks: that is its rest."""
        yield self
        block = self.last
        while block is not None:
            yield Path(self.root, block.parent, block.tokens)
            block = block.parent


class BlockTable:
    """At most ``max_blocks`` blocks, in the order in which they were used.

    A block is used whenever one that follows it is, and after it in that order. So whoever takes the blocks in their
    order never takes one before those that follow it. A snapshot is used only by whoever stops at it.
    """

    def __init__(self, block_size: int, max_blocks: int) -> None:
        self.block_size = block_size
        self.max_blocks = max_blocks
        self.nbytes = 0
        """Memory of all blocks, in bytes."""
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()  # least recently used first
        self._followers: dict[bytes, dict[bytes, Block]] = {}  # by what they follow, and then by their own digest
        self._clock = count(1)
        self._free: list[int] = []  # numbers below the highest that was ever given; while empty, the next is unused

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        """Yield the blocks, the least recently used first. The table must not change."""
        return iter(self._blocks.values())

    def __contains__(self, block: Block) -> bool:
        return self._blocks.get(block.digest) is block

    def followers(self, digest: bytes) -> Collection[Block]:
        """Return the blocks that directly follow a digest, the oldest first. Does not mutate."""
        return self._followers.get(digest, {}).values()

    def following(self, block: Block) -> Iterator[Block]:
        """Yield ``block`` and all that follow it, each before its own followers. The table must not change."""
        waiting = [block]
        while waiting:
            each = waiting.pop()
            yield each
            waiting += self.followers(each.digest)

    def walk(self, salt: str, packed: bytes) -> Path:
        """Return how far a packed prompt is in full blocks. Does not mutate."""
        root = digest = _salt_digest(salt)
        last: Block | None = None
        step = self.block_size * TOKEN_BYTES
        position = 0
        while position + step <= len(packed):
            digest = _digest(digest, packed[position : position + step])
            block = self._blocks.get(digest)
            if block is None:
                break
            last = block
            position += step
        return Path(root, last, packed[position:])

    def cut(self, rest: bytes) -> list[bytes]:
        """Return the packed tokens that follow full blocks as those of the blocks to come. Pure."""
        step = self.block_size * TOKEN_BYTES
        return [rest[position : position + step] for position in range(0, len(rest), step)]

    def add(self, before: bytes, parent: Block | None, tokens: bytes, segment: KVSegment, *, idle: bool) -> Block:
        """Put ``tokens`` into a block behind ``parent``, or behind the salt's digest, and return it. Mutates.

        It counts as used last, so ``use`` is due before any block is taken. Raises ValueError if no block is free.
        """
        if len(self._blocks) >= self.max_blocks:
            raise ValueError(f"All of {self.max_blocks} blocks are taken.")
        number = self._free.pop() if self._free else len(self._blocks)
        start = 0 if parent is None else parent.end
        block = Block(number, before, _digest(before, tokens), parent, tokens, start, segment, idle)
        self._blocks[block.digest] = block
        self._followers.setdefault(before, {})[block.digest] = block
        self.nbytes += block.nbytes
        return block

    def hang(self, block: Block, snapshot: KVSnapshot) -> None:
        """Keep the snapshot of the point where ``block`` ends, which has none; ``use`` is due. Mutates."""
        block.snapshot = snapshot
        self.nbytes += snapshot.nbytes

    def take_off(self, block: Block) -> None:
        """Drop the snapshot of the point where ``block`` ends, if there is one. Mutates."""
        if block.snapshot is not None:
            self.nbytes -= block.snapshot.nbytes
            block.snapshot = None

    def remove(self, block: Block) -> None:
        """Free a block that nothing follows. Mutates."""
        del self._blocks[block.digest]
        siblings = self._followers[block.before]
        del siblings[block.digest]
        if not siblings:
            del self._followers[block.before]
        self._free.append(block.number)
        self.nbytes -= block.nbytes

    def use(self, block: Block, *, idle: bool | None = None, passes: bool = False) -> None:
        """Note that a prompt came to ``block``, and whether somebody waited for it (None: nothing new). Mutates.

        If it ``passes``, the snapshot there is as little used as those before it.
        """
        now = next(self._clock)
        if not passes:
            block.snapshot_used = now
        each: Block | None = block
        while each is not None:
            each.used = now
            self._blocks.move_to_end(each.digest)
            each.idle = each.idle if idle is None else each.idle and idle
            each = each.parent

    def check(self, leases: Mapping[Block, int]) -> None:
        """Raise AssertionError unless the books agree with the blocks, and with how many leases need each."""
        numbers = sorted([*self._free, *(block.number for block in self)])
        _require(numbers == list(range(len(numbers))), "Some block is both free and taken, or neither.")
        _require(len(self) <= self.max_blocks, f"{len(self)} blocks are more than {self.max_blocks}.")
        held = sum(block.nbytes for block in self)
        _require(held == self.nbytes, f"The books say {self.nbytes} bytes, the blocks hold {held}.")
        listed = {block.digest for siblings in self._followers.values() for block in siblings.values()}
        _require(listed == set(self._blocks) and all(self._followers.values()), "The followers are not the blocks.")
        _require(all(block in self for block in leases), "A leased block is gone.")
        passed: set[bytes] = set()
        tick = 0
        for digest, block in self._blocks.items():
            self._check_block(digest, block)
            _require(block.leases == leases.get(block, 0), f"Block {block.number} miscounts its leases.")
            unused = all(follower.digest in passed for follower in self.followers(digest))
            _require(unused, f"Block {block.number} would be taken before one that follows it.")
            _require(tick <= block.used >= block.snapshot_used, f"Block {block.number} is out of order.")
            passed.add(digest)
            tick = block.used

    def _check_block(self, digest: bytes, block: Block) -> None:
        """Raise AssertionError if a block is not what it is found as, or not where its parent is looked for."""
        parent = block.parent
        fits = digest == block.digest == _digest(block.before, block.tokens)
        fits = fits and self._followers.get(block.before, {}).get(digest) is block
        fits = fits and 0 < block.num_tokens == block.segment.num_tokens <= self.block_size
        fits = fits and (block.snapshot is None or block.snapshot.num_tokens == block.end)
        _require(fits, f"Block {block.number}, of {block.num_tokens} tokens, is damaged.")
        if parent is None:
            _require(block.start == 0, f"Block {block.number} begins at token {block.start} and follows nothing.")
            return
        follows = parent in self and parent.digest == block.before and parent.num_tokens == self.block_size
        _require(follows and parent.end == block.start, f"What block {block.number} follows is gone or damaged.")
        _require(block.idle or not parent.idle, f"Block {block.number} follows one that goes before it.")


def _digest(before: bytes, tokens: bytes) -> bytes:
    return blake2b(before + tokens, digest_size=_DIGEST_BYTES).digest()


def _salt_digest(salt: str) -> bytes:
    """Return what the first block of a prompt follows: no digest of a block, whatever the salt is."""
    packed = salt.encode(errors="surrogatepass")
    return blake2b(packed, digest_size=_DIGEST_BYTES, person=b"salt").digest()


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
