"""The nodes of a radix tree over packed tokens: walking, splitting, hanging and taking off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from vllm_mlx_core.api import TOKEN_BYTES, KVSegment, KVSnapshot, common_prefix


class Node:
    """A run of tokens, and what the model holds of it. A root has no tokens, no segment and no parent."""

    __slots__ = (
        "_segment",
        "children",
        "end",
        "grows",
        "idle",
        "key",
        "leases",
        "needs_snapshot",
        "parent",
        "snapshot",
        "snapshot_used",
        "used",
    )

    def __init__(self) -> None:
        self.key = b""
        self.end = 0
        """How many tokens a prompt has that ends with this run."""
        self._segment: KVSegment | None = None
        self.parent: Node | None = None
        self.children: dict[bytes, Node] = {}
        """By the first token of each."""
        self.snapshot: KVSnapshot | None = None
        self.needs_snapshot = False
        """Whether the model can resume at snapshots only."""
        self.leases = 0
        self.grows = False
        """Whether something is about to be hung below it, so that of it only the snapshot may be dropped."""
        self.idle = True
        """Whether only requests that nobody waits for came this way."""
        self.used = 0
        """When a prompt came this way, in ticks."""
        self.snapshot_used = 0
        """When the snapshot was stored or resumed at."""

    @property
    def segment(self) -> KVSegment:
        """What the run's tokens added. Not of a root."""
        assert self._segment is not None
        return self._segment

    @property
    def num_tokens(self) -> int:
        """Length of the run."""
        return len(self.key) // TOKEN_BYTES

    @property
    def start(self) -> int:
        """How many tokens come before the run."""
        return self.end - self.num_tokens

    @property
    def nbytes(self) -> int:
        """Memory of the run and its snapshot, in bytes."""
        return self.segment.nbytes + (0 if self.snapshot is None else self.snapshot.nbytes)

    @property
    def is_useless(self) -> bool:
        """Whether nothing can resume at or below its end, and nothing pins it."""
        return self.snapshot is None and not (self.children or self.leases or self.grows)

    def append(self, key: bytes, segment: KVSegment) -> Node:
        """Hang a new run below this one and return it. Mutates."""
        node = Node()
        node.key, node._segment, node.end, node.parent = key, segment, self.end + len(key) // TOKEN_BYTES, self
        self.children[key[:TOKEN_BYTES]] = node
        return node

    def detach(self) -> Node:
        """Take this run off its parent, and return that. Mutates."""
        parent = self.parent
        assert parent is not None
        del parent.children[self.key[:TOKEN_BYTES]]
        self.parent = None
        return parent

    def cut(self, num_tokens: int) -> Node:
        """Make two of this run: the first ``num_tokens`` become a new one above it, which is returned. Mutates.

        Whoever holds this node, or pins it, holds what it was the end of.
        """
        segment, key, parent = self.segment, self.key, self.parent
        assert parent is not None
        cut = num_tokens * TOKEN_BYTES
        upper = parent.append(key[:cut], segment.part(0, num_tokens))
        upper.idle, upper.used, upper.needs_snapshot = self.idle, self.used, self.needs_snapshot
        self.key, self._segment, self.parent = key[cut:], segment.part(num_tokens, segment.num_tokens), upper
        upper.children[self.key[:TOKEN_BYTES]] = self
        return upper


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a prompt follows the tree: ``length`` tokens, through ``nodes``, the last perhaps only in part."""

    root: Node
    length: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def last(self) -> Node:
        """The run that the prompt ends or parts in; the root if it shares nothing."""
        return self.nodes[-1] if self.nodes else self.root

    @property
    def ends_with_snapshot(self) -> bool:
        """Whether there is a snapshot exactly where the walk ends."""
        return self.last.end == self.length and self.last.snapshot is not None


def walk(root: Node, packed: bytes) -> Walk:
    """Follow a packed prompt from ``root``. Does not mutate."""
    nodes: list[Node] = []
    node, position = root, 0
    while child := node.children.get(packed[position : position + TOKEN_BYTES]):
        nodes.append(child)
        shared = common_prefix(child.key, packed[position : position + len(child.key)]) * TOKEN_BYTES
        position += shared
        if shared < len(child.key):
            break
        node = child
    return Walk(root, position // TOKEN_BYTES, nodes)


def split(path: Walk) -> Node:
    """Return the node that ends where the walk does, after cutting the last run in two if need be. Mutates."""
    last = path.last
    return last if last.end == path.length else last.cut(path.length - last.start)


def subtree(node: Node, *, without: Node | None = None) -> Iterator[Node]:
    """Yield ``node``, unless it is a root, and all below it, each before what follows it. The tree must not change.

    What is below ``without``, and that itself, is left out.
    """
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each is without:
            continue
        if each.parent is not None:
            yield each
        waiting += each.children.values()
