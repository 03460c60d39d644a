"""Drawing one token per row: repeatable uniform numbers, and the inverse of a cumulative distribution.

Every row is reduced on its own, by operations whose result depends on the row's length alone, so that what a row
draws is the same bit for bit whoever shares its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_BLOCK = 256
_ONE_LEVEL = 2048


def seed_state(seed: int) -> int:
    """Return the state of the number stream of ``seed`` (any integer): neighbouring seeds share nothing."""
    return int(_mix(np.array([(seed + _GOLDEN) & _MASK], dtype=np.uint64))[0])


def uniforms(states: Sequence[int], positions: Sequence[int], count: int) -> NDArray[np.float32]:
    """Return float32 [count, rows]: what each row draws at its position and the ``count - 1`` after it.

    A pure function of (state, position): SplitMix64, entered at any position. The values are 22-bit midpoints, so
    neither 0 nor 1 occurs and ``u * total < total`` holds in float32.
    """
    steps = np.arange(1, count + 1, dtype=np.uint64)[:, None] + np.array(positions, dtype=np.uint64)
    mixed = _mix(np.array(states, dtype=np.uint64) + steps * np.uint64(_GOLDEN))
    return (((mixed >> np.uint64(42)).astype(np.float64) + 0.5) * 2.0**-22).astype(np.float32)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(weights: mx.array, u: mx.array) -> mx.array:
    """Return the index [rows, 1] at which each row's share ``u`` [rows, 1] of its total weight is reached. Lazy.

    ``weights`` [rows, length] are not negative; an index of weight 0 is never returned unless all are 0. Long rows
    are searched in two levels, which keeps small weights from vanishing in a long float32 sum.
    """
    rows, length = weights.shape
    if length <= _ONE_LEVEL:
        sums = mx.cumsum(weights, axis=-1)
        return _reached(sums, weights, u * mx.max(sums, axis=-1, keepdims=True))
    if length % _BLOCK:
        weights = mx.pad(weights, [(0, 0), (0, -length % _BLOCK)])
    blocks = weights.reshape(rows, -1, _BLOCK)
    inner = mx.cumsum(blocks, axis=-1)
    mass = inner[..., -1]
    outer = mx.cumsum(mass, axis=-1)
    target = u * mx.max(outer, axis=-1, keepdims=True)
    block = _reached(outer, mass, target)
    before = mx.take_along_axis(outer, block, axis=-1) - mx.take_along_axis(mass, block, axis=-1)
    sums = mx.take_along_axis(inner, block[..., None], axis=1)[:, 0]
    # The two levels round differently: what is left must be within the block.
    rest = mx.minimum(target - before, mx.max(sums, axis=-1, keepdims=True) * (1 - 2.0**-22))
    index = _reached(sums, mx.take_along_axis(blocks, block[..., None], axis=1)[:, 0], rest)
    return block * _BLOCK + index


def _reached(sums: mx.array, weights: mx.array, target: mx.array) -> mx.array:
    # A parallel scan need not be monotone to the last bit: without the second condition an index of weight 0 could win.
    return mx.argmax((sums > target) & (weights > 0), axis=-1, keepdims=True)
