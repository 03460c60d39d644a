"""Log-probabilities under the unmodified model distribution, of generated tokens and of a prompt's alike."""

from __future__ import annotations

import mlx.core as mx

LOGPROB_FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


def logprobs_of(logits: mx.array, chosen: mx.array, most: int) -> tuple[mx.array, mx.array | None, mx.array | None]:
    """Return those of the tokens ``chosen`` [rows], float32 [rows], and of the ``most`` likely ones. Lazy.

    ``logits`` are [rows, vocab], of any float type. The alternatives are ids and values [rows, most], most likely
    first, or None twice if ``most`` is 0; there are never more than the vocabulary has.
    """
    x = logits.astype(mx.float32)
    total = mx.logsumexp(x, axis=-1, keepdims=True)
    own = mx.take_along_axis(x, chosen[:, None], axis=-1)
    own = mx.maximum(own - total, LOGPROB_FLOOR)[:, 0]
    if not most:
        return own, None, None
    if most == 1:  # the one that a greedy choice would be, at a fraction of the work
        ids = mx.argmax(x, axis=-1, keepdims=True)
        values = mx.take_along_axis(x, ids, axis=-1)
    else:
        ids, values = ranked(x, min(most, x.shape[-1]))
    return own, ids, mx.maximum(values - total, LOGPROB_FLOOR)


def ranked(x: mx.array, width: int) -> tuple[mx.array, mx.array]:
    """Return ids and values [rows, width] of the largest values, largest first. Partitions if that is less work."""
    if width == x.shape[-1]:
        ids = mx.argsort(-x, axis=-1)
        return ids, mx.take_along_axis(x, ids, axis=-1)
    part = mx.argpartition(-x, width - 1, axis=-1)[:, :width]
    values = mx.take_along_axis(x, part, axis=-1)
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(part, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
