"""States of a model as bytes, so that a policy can keep them outside of the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from .caching import KVSegment, KVSnapshot


class Tensor(NamedTuple):
    """An array as bytes, row by row, little endian."""

    dtype: str
    """As safetensors files name it: F32, BF16, U8, …"""
    shape: tuple[int, ...]
    data: bytes | memoryview
    """May be the array's own memory, which stays as it is while somebody holds this. Any thread may read it."""


Tensors: TypeAlias = Mapping[str, Tensor]
"""A part of a state, by names that mean something to its codec only."""


class StateCodec(Protocol):
    """Turns parts of one model's states into bytes and back. Engine thread only."""

    @property
    def identity(self) -> str:
        """What a state depends on beside its tokens and its salt: bytes of another identity are of no use.

        Slow when it is first asked for: it looks at the weights.
        """
        ...

    def dump(self, part: KVSegment | KVSnapshot) -> Tensors:
        """Return a part as bytes. Waits for the device; does not mutate. Raises ValueError if it cannot."""
        ...

    def load_segment(self, tensors: Tensors) -> KVSegment:
        """Return the segment that ``dump`` made these of. Copies them. Raises ValueError if they are of none."""
        ...

    def load_snapshot(self, tensors: Tensors) -> KVSnapshot:
        """Return the snapshot that ``dump`` made these of. Copies them. Raises ValueError if they are of none."""
        ...
