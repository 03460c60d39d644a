"""What reading tokens takes in memory, learned from a few that are read at load. Engine thread only."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from vllm_mlx_core.api import Generator

from . import device, states
from .captured import room_for

CHUNK = 32
"""Tokens that each of the two measured forwards reads."""
CONTEXT = 128
"""Tokens that have been read when the second is done."""
STEP = 256
"""mlx-lm's caches make room for so many tokens at a time."""


class _Window(NamedTuple):
    """Layers that keep at most ``size`` tokens."""

    size: int
    per_token: int


class StateCost(NamedTuple):
    """Bytes that a sequence takes. The state is exact but for how its buffers grow; scratch is an estimate.

    ``fixed`` is what recurrent layers keep, ``per_token`` what all other layers without a window do. While a prompt is
    read, each token of the chunk takes ``scratch_per_token`` for a moment, and ``scratch_per_pair`` for each token that
    it looks back on, which is nothing where attention is one kernel.
    """

    fixed: int
    per_token: int
    windows: tuple[_Window, ...]
    scratch_per_token: float
    scratch_per_pair: float

    def state(self, num_tokens: int) -> int:
        """Return the bytes of one row of a state with room for ``num_tokens``."""
        room = max(-(-num_tokens // STEP) * STEP, room_for(num_tokens))
        windows = sum(min(room, window.size) * window.per_token for window in self.windows)
        return self.fixed + room * self.per_token + windows

    def scratch(self, chunk: int, num_tokens: int) -> int:
        """Return the bytes that reading the last ``chunk`` of ``num_tokens`` tokens takes beside the state."""
        return int(chunk * (self.scratch_per_token + num_tokens * self.scratch_per_pair))


def learn(generator: Generator) -> StateCost:
    """Read ``CONTEXT`` tokens and see what that takes. Raises whatever the model does."""
    layers = generator.make_cache()
    vocabulary = min(generator.vocab_size, 200)

    def read(count: int) -> None:
        tokens = [[(17 * i) % vocabulary for i in range(count)]]
        generator.forward(mx.array(tokens, dtype=mx.int32), layers)
        mx.eval(states.arrays(layers))

    first = device.peak_of(lambda: read(CHUNK))
    first = max(0, first - sum(cache.nbytes for cache in _caches(layers)))
    read(CONTEXT - 2 * CHUNK)
    last = device.peak_of(lambda: read(CHUNK))
    fixed, per_token, windows = 0, 0, []
    for cache in _caches(layers):
        size = getattr(cache, "max_size", None) or getattr(cache, "chunk_size", None)
        of_token = _bytes_per_token(cache)
        if of_token is None:
            fixed += cache.nbytes
        elif size is None:
            per_token += of_token
        else:
            windows.append(_Window(size, of_token))
    per_pair = max(0, last - first) / (CHUNK * (CONTEXT - CHUNK))
    return StateCost(fixed, per_token, tuple(windows), first / CHUNK, per_pair)


def _caches(layers: states.Layers) -> list[Any]:
    return [cache for layer in layers for cache in states.members(layer)]


def _bytes_per_token(cache: Any) -> int | None:
    """Return what a cache keeps for each token; None if it is not of the kind that does."""
    kept = [getattr(cache, name, None) for name in ("keys", "values")]
    arrays = [array for _, array in tree_flatten(kept) if isinstance(array, mx.array)]
    if not arrays or any(array.ndim != 4 for array in arrays):
        return None
    return int(sum(array.nbytes // array.shape[2] for array in arrays))
