"""Attention for MLX's CPU backend on Linux, up to 1.8 times as fast as MLX's own.

There ``mx.fast.scaled_dot_product_attention`` is a chain of ordinary operations, and its softmax spends 11 ns on each
exponential, four fifths of the whole. ``mx.power`` takes less than 4 (it is the C library's powf), so this chain
computes powers of two, folds log2(e) into the scale, and divides by the sum after the values are weighed, where there
is less to divide. Heads that share keys become rows of one matrix product.

``install`` replaces MLX's function for the whole process: models call it by that name. macOS keeps its own.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

import mlx.core as mx

from .device import has_metal

MIN_SCORES = 4096
"""Fewer scores take less time than the additional operations do."""

_mlx_attention = mx.fast.scaled_dot_product_attention
_LOG2_E = math.log2(math.e)


@cache
def install() -> bool:
    """Let models use this attention where it is the faster one; return whether it is. Idempotent, any thread."""
    faster = sys.platform == "linux" and not has_metal()
    if faster:
        mx.fast.scaled_dot_product_attention = attention
    return faster


def attention(
    q: mx.array,
    k: mx.array,
    v: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    **options: Any,
) -> mx.array:
    """Return what ``mx.fast.scaled_dot_product_attention`` does, to float32 rounding. Lazy; does not mutate.

    ``q`` is [rows, heads, length, width]; ``k`` and ``v`` are [rows, kv_heads, positions, width]. Small inputs, and
    what language models do not use on a CPU, are left to MLX's function, and so are its errors.
    """
    if options or sinks is not None or not _is_usual(q, k, v, mask):
        return _mlx_attention(q, k, v, scale=scale, mask=mask, sinks=sinks, **options)
    rows, heads, length, _ = q.shape
    kv_heads, positions = k.shape[1:3]
    group = heads // kv_heads
    scores = (q * (scale * _LOG2_E)).reshape(rows, kv_heads, group * length, -1) @ k.swapaxes(-1, -2)
    if isinstance(mask, str):
        mask = mx.arange(positions - length, positions)[:, None] >= mx.arange(positions) if length > 1 else None
    if mask is not None:
        scores = _masked(scores, mask, group, length)
    weights = mx.power(2.0, scores - mx.max(scores, axis=-1, keepdims=True))
    mixed = (weights @ v) / mx.sum(weights, axis=-1, keepdims=True)
    return mixed.reshape(rows, heads, length, -1)


def _is_usual(q: mx.array, k: mx.array, v: mx.array, mask: mx.array | str | None) -> bool:
    """Return whether these are float32 tensors and a mask that fit together, and enough of them."""
    if not q.ndim == k.ndim == v.ndim == 4 or not q.dtype == k.dtype == v.dtype == mx.float32:
        return False
    rows, heads, length, width = q.shape
    _, kv_heads, positions, _ = k.shape
    if k.shape[:3] != v.shape[:3] or k.shape[0] != rows or k.shape[3] != width or heads % kv_heads:
        return False
    if isinstance(mask, mx.array):
        if mask.dtype != mx.bool_ or not _broadcasts(mask.shape, (rows, heads, length, positions)):
            return False
    elif mask not in (None, "causal"):
        return False
    num_scores: int = rows * heads * length * positions
    return num_scores >= MIN_SCORES


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of ``shape`` can be read as one of ``target``."""
    ends = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(size in (1, wanted) for size, wanted in ends)


def _masked(scores: mx.array, mask: mx.array, group: int, length: int) -> mx.array:
    """Hide what ``mask`` (bool, broadcasts to [rows, heads, length, positions]) denies.

    ``scores`` are [rows, kv_heads, group * length, positions].
    """
    per_head = mask.ndim > 2 and mask.shape[-3] > 1
    lowest = mx.finfo(scores.dtype).min
    if group == 1 or (length == 1 and not per_head):
        return mx.where(mask, scores, lowest)
    rows, kv_heads, _, positions = scores.shape
    if per_head:
        mask = mask.reshape(*mask.shape[:-3], kv_heads, group, *mask.shape[-2:])
    elif mask.ndim > 2:
        mask = mask[..., None, :, :]
    apart = scores.reshape(rows, kv_heads, group, length, positions)
    return mx.where(mask, apart, lowest).reshape(scores.shape)
