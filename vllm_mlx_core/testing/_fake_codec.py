"""Parts of fake states as bytes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from vllm_mlx_core.api import KVSegment, KVSnapshot, Tensor, Tensors

from ._fake_state import FakeSegment, FakeSnapshot


class FakeCodec:
    """The ``StateCodec`` of ``FakeState``: another ``identity`` is another model."""

    def __init__(self, identity: str = "fake") -> None:
        self.identity = identity

    def dump(self, part: KVSegment | KVSnapshot) -> Tensors:
        """Return a part as bytes. Raises ValueError if it is of another kind."""
        match part:
            case FakeSegment(tokens, start, needs_snapshot, bytes_per_token):
                return {"tokens": _pack(tokens), "segment": _pack([start, needs_snapshot, bytes_per_token])}
            case FakeSnapshot(num_tokens, can_truncate, nbytes):
                return {"snapshot": _pack([num_tokens, can_truncate, nbytes])}
        raise ValueError(f"A {type(part).__name__} is no part of a FakeState.")

    def load_segment(self, tensors: Tensors) -> FakeSegment:
        """Return the segment again. Raises ValueError if the bytes are none."""
        start, needs_snapshot, bytes_per_token = _unpack(tensors, "segment")
        return FakeSegment(tuple(_unpack(tensors, "tokens")), start, bool(needs_snapshot), bytes_per_token)

    def load_snapshot(self, tensors: Tensors) -> FakeSnapshot:
        """Return the snapshot again. Raises ValueError if the bytes are none."""
        num_tokens, can_truncate, nbytes = _unpack(tensors, "snapshot")
        return FakeSnapshot(num_tokens, bool(can_truncate), nbytes)


def _pack(numbers: Sequence[int]) -> Tensor:
    return Tensor("I64", (len(numbers),), array("q", numbers).tobytes())


def _unpack(tensors: Tensors, name: str) -> Sequence[int]:
    if name not in tensors:
        raise ValueError(f"There is no {name!r} among {', '.join(tensors)}.")
    return array("q", bytes(tensors[name].data))
