"""Layer states: mlx-lm's cache objects, one per layer, for one sequence or for a batch of them.

This is the only module that knows how mlx-lm merges, filters, extracts and trims its caches. A *solo* state is what a
family's ``make_cache`` returns; a *batch* state is several of them merged, one row each. Engine thread only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import KVCache

Layers = list[Any]


def can_merge(layers: Layers) -> bool:
    """Return whether every layer's cache class can hold several sequences."""
    return all(all(map(_mergeable, _members(layer))) for layer in layers)


def merge(rows: Sequence[Layers]) -> Layers:
    """Return the batch state of several solo states. Does not mutate them.

    Layers that are still empty are fine (a one-token prompt has read nothing yet).
    """
    merged = [layer[0].merge(list(layer)) for layer in zip(*rows, strict=True)]
    for layer in merged:
        layer.finalize()  # a merge of empty recurrent states leaves padding marks behind
    return merged


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
    return all(_truncates(c) and not _is_windowed(c) for layer in layers for c in _members(layer))


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


class PromptState:
    """A solo state after a known number of tokens, as the prefix cache keeps it (``api.KVState``)."""

    def __init__(self, layers: Layers, num_tokens: int) -> None:
        self._layers = layers
        self._num_tokens = num_tokens
        self._nbytes = int(sum(layer.nbytes for layer in layers))

    @property
    def num_tokens(self) -> int:
        """Number of tokens read."""
        return self._num_tokens

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._nbytes

    @property
    def can_truncate(self) -> bool:
        """Whether every layer can drop its latest tokens."""
        return all(_truncates(cache) for layer in self._layers for cache in _members(layer))

    def truncate(self, num_tokens: int) -> PromptState:
        """Return the state after the first ``num_tokens`` tokens. Does not mutate; raises ValueError if it cannot."""
        drop = self._num_tokens - num_tokens
        if drop < 0 or (drop and not self.can_truncate):
            raise ValueError(f"cannot go from {self._num_tokens} tokens to {num_tokens}")
        layers = self.layers()
        if drop:
            for layer in layers:
                if layer.trim(drop) != drop:
                    raise ValueError("a layer did not trim as asked")
            _cut(layers)
        return PromptState(layers, num_tokens)

    def compact(self) -> PromptState:
        """Return a copy whose arrays hold nothing but themselves. Enqueues; does not mutate.

        A row taken out of a batch is a view, or still to be computed: either keeps the arrays of the whole batch alive.
        """
        layers = self.layers()
        _cut(layers)
        for layer in layers:
            for cache in _members(layer):
                cache.state = tree_map(lambda a: mx.contiguous(a) if isinstance(a, mx.array) else a, cache.state)
        mx.async_eval(arrays(layers))
        return PromptState(layers, self._num_tokens)

    def layers(self) -> Layers:
        """Return a solo state of its own to go on from. Arrays are shared until they are written to."""
        return copy.deepcopy(self._layers)


def _truncates(cache: Any) -> bool:
    """Return whether a cache can drop its latest tokens.

    A chunked one says so even after it has dropped tokens from its front, which going back would need.
    """
    return bool(cache.is_trimmable()) and not getattr(cache, "start_position", 0)


def _cut(layers: Layers) -> None:
    """Let plain KV caches hold what was read and nothing behind it. Mutates.

    What was dropped is no longer masked by anything but a mask, and a weight of zero does not hide a NaN.
    """
    for layer in layers:
        for cache in _members(layer):
            if type(cache) is KVCache and not cache.empty():
                cache.keys = cache.keys[..., : cache.offset, :]
                cache.values = cache.values[..., : cache.offset, :]


def _is_windowed(cache: Any) -> bool:
    return hasattr(cache, "max_size") or hasattr(cache, "chunk_size")


def _members(layer: Any) -> Sequence[Any]:
    return getattr(layer, "caches", (layer,))


def _mergeable(cache: Any) -> bool:
    return hasattr(cache, "merge")
