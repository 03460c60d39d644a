"""Under which names parts of states lie in a folder. No files are touched here.

A *point* is a number of tokens from the start of a prompt, known by a hash of these tokens, the salt and the model. A
segment's name holds the points between which it lies, so that a list of names is enough to find how far a prompt can
resume, and a snapshot's the point it is of. Long states are cut every ``SEGMENT_TOKENS`` tokens, wherever they end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mlx_core.api import TOKEN_BYTES

SEGMENT_TOKENS = 128
"""Tokens of a whole segment. Prompts that part within one share nothing of it."""

_SUFFIX = ".safetensors"
_SEGMENT = re.compile(r"vllm-mlx-([0-9a-f]{16})-([0-9a-f]{32})-([1-9][0-9]{0,3})([ps])-([0-9a-f]{32})\.safetensors")
_SNAPSHOT = re.compile(r"vllm-mlx-([0-9a-f]{16})-([0-9a-f]{32})-snapshot\.safetensors")


class SegmentName(NamedTuple):
    """A segment of ``num_tokens`` between two points.

    ``needs_snapshot``: it is of a model that can resume at snapshots only.
    """

    model: str
    start: str
    num_tokens: int
    needs_snapshot: bool
    end: str

    def __str__(self) -> str:
        kind = "s" if self.needs_snapshot else "p"
        return f"vllm-mlx-{self.model}-{self.start}-{self.num_tokens}{kind}-{self.end}{_SUFFIX}"


class SnapshotName(NamedTuple):
    """The snapshot of a point."""

    model: str
    point: str

    def __str__(self) -> str:
        return f"vllm-mlx-{self.model}-{self.point}-snapshot{_SUFFIX}"


def parse(name: str) -> SegmentName | SnapshotName | None:
    """Return what a file's name says, or None if no part of a state is called that."""
    if found := _SEGMENT.fullmatch(name):
        model, start, num_tokens, kind, end = found.groups()
        return SegmentName(model, start, int(num_tokens), kind == "s", end)
    if found := _SNAPSHOT.fullmatch(name):
        return SnapshotName(*found.groups())
    return None


def model_tag(identity: str) -> str:
    """Return what the names of all files of a model have in common."""
    return _hash(identity.encode(), b"model", size=8)


def origin(identity: str, salt: str) -> str:
    """Return the point before the first token."""
    return _hash(identity.encode(), salt.encode("utf-8", "surrogatepass"), size=16)


def beyond(point: str, tokens: bytes) -> str:
    """Return the point that these packed tokens lead to."""
    return _hash(point.encode(), tokens, size=16)


def cut(tokens: bytes) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of each segment of packed tokens, in tokens: whole ones, and what is left."""
    num_tokens = len(tokens) // TOKEN_BYTES
    for start in range(0, num_tokens, SEGMENT_TOKENS):
        yield start, min(start + SEGMENT_TOKENS, num_tokens)


def part(tokens: bytes, start: int, stop: int) -> bytes:
    """Return some of packed tokens."""
    return tokens[start * TOKEN_BYTES : stop * TOKEN_BYTES]


def _hash(left: bytes, right: bytes, *, size: int) -> str:
    """Return a hash of two texts; where one ends and the other begins makes a difference."""
    return hashlib.blake2b(len(left).to_bytes(8, "little") + left + right, digest_size=size).hexdigest()
