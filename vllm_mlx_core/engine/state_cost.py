"""What reading tokens takes in memory, learned from a few that are read at load. Engine thread only."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from vllm_mlx_core.api import Generator

from . import device, states
from .captured import room_for
from .rows import STEP

log = logging.getLogger(__name__)

CHUNK = 32
"""Tokens that a counted forward reads; one of them reads twice as many."""
CONTEXTS = (128, 192, 256)
"""Tokens that have been read when each of the three is done. Caches have room for all from the beginning."""
LAYERS_AT_ONCE = 2
"""Layers whose results may be there together: MLX enqueues further than it computes, and layers differ."""


class _Window(NamedTuple):
    """Layers that keep at most ``size`` tokens."""

    size: int
    per_token: int


class StateCost(NamedTuple):
    """Bytes that a sequence takes: of the state at most, of scratch an estimate.

    ``fixed`` is what recurrent layers keep, ``per_token`` what all other layers without a window do. While a prompt is
    read, each token of the chunk takes ``scratch_per_token`` for a moment, ``scratch_per_pair`` for each token that it
    looks back on, and ``scratch_per_chunk_pair`` for each of the chunk where no more is looked back on: in windows, and
    in recurrent layers. Where attention is one kernel, pairs take nothing.
    """

    fixed: int
    per_token: int
    windows: tuple[_Window, ...]
    scratch_per_token: float
    scratch_per_pair: float
    scratch_per_chunk_pair: float

    def state(self, num_tokens: int) -> int:
        """Return the bytes of one row of a state of ``num_tokens``, whatever room its buffers have for more."""
        room = max(num_tokens + STEP, room_for(num_tokens))
        windows = sum(min(room, window.size) * window.per_token for window in self.windows)
        return self.fixed + room * self.per_token + windows

    def scratch(self, chunk: int, num_tokens: int) -> int:
        """Return the bytes that reading the last ``chunk`` of ``num_tokens`` tokens takes beside the state."""
        return int(
            chunk * (self.scratch_per_token + num_tokens * self.scratch_per_pair + chunk * self.scratch_per_chunk_pair)
        )


def learn(generator: Generator) -> StateCost:
    """Read ``CONTEXTS[-1]`` tokens and see what that takes. The same at every start. Raises whatever the model does.

    How much is in use for a moment depends on how far MLX is ahead of what it computes, which is never the same twice.
    What all operations return together is: a share of it, by layers, is the estimate.
    """
    layers = generator.make_cache()
    vocabulary = min(generator.vocab_size, 200)

    def read(tokens: mx.array) -> None:
        generator.forward(tokens, layers)
        mx.eval(states.arrays(layers))

    def tokens(count: int) -> mx.array:
        return mx.array([[(17 * i) % vocabulary for i in range(count)]], dtype=mx.int32)

    def held_by(count: int) -> int:
        try:
            return device.held_by(read, tokens(count))
        except (
            Exception
        ):  # a kernel of this device that nothing can be watched through: states are counted all the same
            log.debug("What reading %d tokens takes for a moment is not known", count, exc_info=True)
            return 0

    read(tokens(CONTEXTS[0] - CHUNK))
    first = held_by(CHUNK)
    double = held_by(2 * CHUNK)
    read(tokens(CHUNK))
    last = held_by(CHUNK)
    fixed, per_token, windows, looking_back = 0, 0, [], 0
    for cache in _caches(layers):
        size = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
        of_token = _bytes_per_token(cache)
        if of_token is None:
            fixed += cache.nbytes
            continue
        looking_back += size is None or size >= CONTEXTS[-1]
        if size is None:
            per_token += of_token
        else:
            windows.append(_Window(size, of_token))
    share = LAYERS_AT_ONCE / (CHUNK * len(layers))
    per_pair, per_chunk_pair = 0.0, share * max(0, double / 2 - (first + last) / 2) / CHUNK
    if looking_back:
        share_of_pairs = LAYERS_AT_ONCE / (CHUNK * looking_back)
        per_pair = share_of_pairs * max(0, last - first) / (CONTEXTS[-1] - CONTEXTS[0])
    if device.has_metal():  # there attention is one kernel, which it is not while results are kept
        per_pair = per_chunk_pair = 0.0
    return StateCost(fixed, per_token, tuple(windows), share * first, per_pair, per_chunk_pair)


def _caches(layers: states.Layers) -> list[Any]:
    return [cache for layer in layers for cache in states.members(layer)]


def _bytes_per_token(cache: Any) -> int | None:
    """Return what a cache keeps for each token; None if it is not of the kind that does."""
    kept = [getattr(cache, name, None) for name in ("keys", "values")]
    arrays = [array for _, array in tree_flatten(kept) if isinstance(array, mx.array)]
    if not arrays or any(array.ndim != 4 for array in arrays):
        return None
    return int(sum(array.nbytes // array.shape[2] for array in arrays))
