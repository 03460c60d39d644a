"""Arrays as bytes and back, without a copy where memory allows it. Engine thread only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from vllm_mlx_core.api import Tensor

_DTYPES = {
    "F32": mx.float32,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U8": mx.uint8,
    "U16": mx.uint16,
    "U32": mx.uint32,
    "U64": mx.uint64,
    "I8": mx.int8,
    "I16": mx.int16,
    "I32": mx.int32,
    "I64": mx.int64,
    "BOOL": mx.bool_,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def as_bytes(array: mx.array) -> memoryview:
    """Return an array's bytes, row by row: its own memory if that is contiguous. Waits for the device."""
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return memoryview(flat)


def to_tensors(arrays: Sequence[mx.array]) -> list[Tensor]:
    """Return arrays as bytes. Waits for the device, once. Raises ValueError for a type that has no name in files."""
    mx.eval(arrays)
    for array in arrays:
        if array.dtype not in _NAMES:
            raise ValueError(f"an array of {array.dtype} cannot be kept as bytes")
    return [Tensor(_NAMES[array.dtype], tuple(array.shape), as_bytes(array)) for array in arrays]


def to_array(tensor: Tensor) -> mx.array:
    """Return the array of these bytes, a copy. Raises ValueError if they are not that of any."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None or len(tensor.data) != math.prod(tensor.shape) * dtype.size:
        raise ValueError(f"{len(tensor.data)} bytes are no array of {tensor.dtype} {list(tensor.shape)}")
    if not tensor.data:
        return mx.zeros(tensor.shape, dtype)
    return mx.array(memoryview(tensor.data)).view(dtype).reshape(tensor.shape)
