"""Layer states: mlx-lm's cache objects, one per layer, for one sequence or for a batch of them.

This module and ``prompt_state`` are the only ones that know how mlx-lm merges, filters, extracts and trims its caches.
A *solo* state is what a family's ``make_cache`` returns; a *batch* state is several of them merged, one row each.
Engine thread only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.cache import CacheList, KVCache

from .kv_rows import KVRows
from .quantized_rows import QuantizedRow, QuantizedRows
from .rows import Rows, room_for
from .window_rows import WindowRow

Layers = list[Any]

PLAIN = (KVCache, KVRows, QuantizedRow, QuantizedRows)
"""Caches that keep something for each token, however many there are."""


def can_merge(layers: Layers) -> bool:
    """Return whether every layer's cache class can hold several sequences."""
    return all(all(map(_mergeable, members(layer))) for layer in layers)


def merge(rows: Sequence[Layers]) -> Layers:
    """Return the batch state of several solo states. Does not mutate them.

    Layers that are still empty are fine (a one-token prompt has read nothing yet).
    """
    merged = [_merged(list(layer), n / len(rows[0])) for n, layer in enumerate(zip(*rows, strict=True))]
    for layer in merged:
        layer.finalize()  # a merge of empty recurrent states leaves padding marks behind
    return merged


def reserve(batch: Layers, rows: int) -> None:
    """Say that the batch will have so many rows soon, so that they can join without copying the others. Mutates."""
    for layer in batch:
        for cache in members(layer):
            if isinstance(cache, Rows):
                cache.reserve(rows)


@contextmanager
def staggered(layers: Layers, tokens: int) -> Iterator[None]:
    """Let the plain KV of a solo state that reads so many tokens meanwhile not grow in all layers at once. Mutates."""
    growing = []
    for number, layer in enumerate(layers):
        for cache in members(layer):
            if type(cache) in (KVCache, QuantizedRow):
                cache.step = room_for(cache.offset + tokens, number / len(layers)) - cache.offset
                growing.append(cache)
    try:
        yield
    finally:
        for cache in growing:
            del cache.step


def extend(batch: Layers, other: Layers, *, rows: int, more_rows: int) -> None:
    """Add the ``more_rows`` rows of ``other`` at the end of the ``rows`` of ``batch``.

    Mutates ``batch``; ``other`` must not be used again. Either may still be empty.
    """
    for layer, more in zip(batch, other, strict=True):
        if layer.empty() or more.empty():  # an empty recurrent state knows its rows by its padding marks only
            layer.prepare(lengths=[0] * rows)
            more.prepare(lengths=[0] * more_rows)
            layer.extend(more)
            layer.finalize()
        else:
            layer.extend(more)


def places(stays: Sequence[bool]) -> list[int]:
    """Return the rows that stay, in the order in which they are cheapest to keep: the last take the places of the gone.

    ``stays`` says of each row whether it does.
    """
    num_rows = sum(stays)
    last = iter([row for row in range(num_rows, len(stays)) if stays[row]])
    return [row if stays[row] else next(last) for row in range(num_rows)]


def keep(batch: Layers, rows: Sequence[int]) -> None:
    """Keep these rows of a batch state, in this order. Mutates."""
    index = mx.array(list(rows))
    for layer in batch:
        layer.filter(index)


def extract(batch: Layers, row: int) -> Layers:
    """Return one row of a batch state as a solo state. Does not mutate."""
    return [layer.extract(row) for layer in batch]


def always_truncates(layers: Layers) -> bool:
    """Return whether a state can drop its latest tokens whatever it has read: plain KV only, no windows."""
    return all(truncates(c) and not _is_windowed(c) for layer in layers for c in members(layer))


def token_bytes(layers: Layers) -> int:
    """Return the bytes that one row keeps for each token: those of plain KV, whose padding costs as much as tokens."""
    caches = [c for layer in layers for c in members(layer) if type(c) in PLAIN and not c.empty()]
    arrays = [a for cache in caches for _, a in tree_flatten([cache.keys, cache.values])]
    return sum(a.nbytes // (a.shape[0] * a.shape[2]) for a in arrays)


def arrays(layers: Layers) -> list[Any]:
    """Return everything in a state that MLX can evaluate."""
    return [layer.state for layer in layers]


def begin_ragged(batch: Layers, lengths: Sequence[int]) -> None:
    """Announce that the next forward reads right-padded rows of these lengths. Mutates."""
    longest = max(lengths)
    padding = [longest - length for length in lengths]
    for layer in batch:
        layer.prepare(lengths=list(lengths), right_padding=padding)


def end_ragged(batch: Layers) -> None:
    """Remove the padding that ``begin_ragged`` announced. Mutates."""
    for layer in batch:
        layer.finalize()


def truncates(cache: Any) -> bool:
    """Return whether a cache can drop its latest tokens.

    A chunked one says so even after it has dropped tokens from its front, which going back would need.
    """
    return bool(cache.is_trimmable()) and not getattr(cache, "start_position", 0)


def truncatable_tokens(layers: Layers) -> float:
    """Return the number of tokens from which on a state cannot drop its latest ones any more; infinity for plain KV."""
    return min((_truncatable_tokens(cache) for layer in layers for cache in members(layer)), default=math.inf)


def _truncatable_tokens(cache: Any) -> float:
    if not truncates(cache):
        return 0
    return float(getattr(cache, "max_size", getattr(cache, "chunk_size", math.inf)))


def _is_windowed(cache: Any) -> bool:
    return hasattr(cache, "max_size") or hasattr(cache, "chunk_size")


def members(layer: Any) -> Sequence[Any]:
    """Return the caches that a layer has: one, or several in a list of its own."""
    return getattr(layer, "caches", (layer,))


def _merged(layer: list[Any], place: float) -> Any:
    """Return the rows of a layer's caches: this engine's own where it has some, else what mlx-lm makes of them."""
    first = layer[0]
    if isinstance(first, CacheList):
        columns = zip(*(each.caches for each in layer), strict=True)
        return CacheList(*(_merged(list(column), place) for column in columns))
    if type(first) is KVCache:
        return KVRows.of(layer, place)
    if isinstance(first, QuantizedRow | WindowRow):
        return first.merge(layer, place)
    return first.merge(layer)


def _mergeable(cache: Any) -> bool:
    return hasattr(cache, "merge")
