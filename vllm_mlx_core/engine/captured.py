"""Captured decode steps, recorded once and replayed: what CUDA graphs are elsewhere, by ``mx.compile``.

Building the graph of a step in Python takes as long as a small model takes to compute it. The graph of a decode step
depends on shapes only, if three things hold still: the number of rows, the room in the KV buffers, and everything that
a model would take from its caches as a Python number. So the buffers are kept at one of a few sizes, a step attends to
all of that room under a mask, and positions are arrays. The ordinary cache objects stay the state between steps:
captured and ordinary steps follow each other freely.

Only layers that are plain KV caches are captured; any other state takes the ordinary path. That a model may be
captured at all is its own word (``Generator``), and the self-test's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from vllm_mlx_core.api import Generator

from .kv_rows import KVRows
from .states import Layers

log = logging.getLogger(__name__)

MAX_GRAPHS = 64
SMALLEST_ROOM = 64

_Shape = tuple[int, int, int, mx.Dtype]
"""Rows, those that the buffers have room for, room for positions, type of the tokens."""
_Graph = Callable[..., tuple[mx.array, list[mx.array], list[mx.array]]]


class CapturedGenerator:
    """A generator that records and replays the decode steps of another. Same contract; engine thread only."""

    def __init__(self, generator: Generator, *, smallest_room: int = SMALLEST_ROOM) -> None:
        self._generator = generator
        self._smallest_room = smallest_room
        self._graphs: OrderedDict[_Shape, _Graph] = OrderedDict()
        self._num_recorded = 0
        self._gave_up = False

    @property
    def nbytes(self) -> int:
        """Memory held by the weights, in bytes."""
        return self._generator.nbytes

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._generator.vocab_size

    @property
    def num_graphs(self) -> int:
        """Number of captured steps, one for each shape."""
        return len(self._graphs)

    def make_cache(self) -> list[Any]:
        """Return an empty state for one sequence."""
        return self._generator.make_cache()

    def forward(self, tokens: mx.array, layers: Layers) -> mx.array:
        """Read ``tokens`` (int32, [rows, length]) and return logits [rows, length, vocab]. Mutates ``layers``."""
        if tokens.shape[1] == 1 and not self._gave_up and can_capture(layers):
            try:
                return self._replay(tokens, layers)
            except Exception:  # nothing is changed yet: recording works on stand-ins
                log.debug("A decode step cannot be captured", exc_info=True)
                self._give_up()
        return self._generator.forward(tokens, layers)

    def _replay(self, tokens: mx.array, layers: Layers) -> mx.array:
        first = layers[0]
        room = max(room_for(first.size() + 1), self._smallest_room)
        graph = self._graph((tokens.shape[0], first.keys.shape[0], room, tokens.dtype))
        offset = first.offset if isinstance(first, KVRows) else mx.array([first.offset], dtype=mx.int32)
        keys = [_fit(layer.keys, room) for layer in layers]
        values = [_fit(layer.values, room) for layer in layers]
        logits, keys, values = graph(tokens, offset, keys, values)
        if self._num_recorded > len(self._graphs):  # nothing was replayed: MLX compiles no functions (any more)
            self._give_up()
        # The buffers' old arrays have no other owner now, so that MLX updates them in place.
        for layer, layer_keys, layer_values in zip(layers, keys, values, strict=True):
            layer.keys, layer.values = layer_keys, layer_values
            if isinstance(layer, KVRows):
                layer.advance(1)
            else:
                layer.offset += 1
        return logits

    def _give_up(self) -> None:
        self._gave_up = True
        self._graphs.clear()

    def _graph(self, key: _Shape) -> _Graph:
        """Return the graph for a shape, recorded at its first call. The least recently used one is forgotten."""
        if key not in self._graphs:
            self._graphs[key] = mx.compile(self._step())
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
                self._num_recorded -= 1
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _step(self) -> _Graph:
        """Return a new function to record: MLX tells recorded functions apart by identity."""

        def step(
            tokens: mx.array, offset: mx.array, keys: list[mx.array], values: list[mx.array]
        ) -> tuple[mx.array, list[mx.array], list[mx.array]]:
            self._num_recorded += 1
            layers = [_Layer(k, v, offset) for k, v in zip(keys, values, strict=True)]
            logits = self._generator.forward(tokens, layers)
            if any(layer.num_updates != 1 for layer in layers):
                raise ValueError("a layer's cache was not updated exactly once")
            return logits, [layer.keys for layer in layers], [layer.values for layer in layers]

        return step


class _Layer:
    """What a model sees of a plain KV cache while a step is recorded: lengths are arrays, the room is fixed.

    ``offset`` (int32, [rows]) says how many tokens each row has read. The buffers may have room for more rows.
    """

    __slots__ = ("_written", "keys", "num_updates", "offset", "values")

    def __init__(self, keys: mx.array, values: mx.array, offset: mx.array) -> None:
        self.keys = keys
        self.values = values
        self.offset = offset
        self.num_updates = 0
        self._written = offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Write one position of each row and return their whole room; ``make_mask`` tells what of it counts."""
        rows = mx.arange(len(keys))
        self.keys[rows, :, self._written] = keys[:, :, 0]
        self.values[rows, :, self._written] = values[:, :, 0]
        self.offset = self.offset + 1
        self.num_updates += 1
        return self.keys[: len(keys)], self.values[: len(keys)]

    def make_mask(self, num_tokens: int, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return the mask of the next position, bool [rows, 1, 1, room]."""
        if num_tokens != 1 or self.num_updates:
            raise ValueError("a decode step masks one position before it writes it")
        columns, latest = mx.arange(self.keys.shape[2]), self.offset[:, None, None, None]
        mask = columns <= latest
        return mask if window_size is None else mask & (columns > latest - window_size)


def room_for(length: int) -> int:
    """Return how many positions the buffers of a state of ``length`` have: at most an eighth or 63 more.

    So few sizes occur that few graphs are needed, and growing copies little.
    """
    step = max(SMALLEST_ROOM, (1 << length.bit_length()) >> 4)
    return -(-length // step) * step


def can_capture(layers: Layers) -> bool:
    """Return whether every layer is the same kind of plain KV cache, of the same length, and not empty."""
    kind = type(layers[0])
    length = layers[0].size() if kind in (KVCache, KVRows) else 0
    return length > 0 and all(type(layer) is kind and layer.size() == length for layer in layers)


def _fit(buffer: mx.array, room: int) -> mx.array:
    """Return ``buffer`` [rows, heads, positions, width] with ``room`` positions. Does not mutate."""
    missing = room - buffer.shape[2]
    if missing > 0:
        return mx.pad(buffer, [(0, 0), (0, 0), (0, missing), (0, 0)])
    return buffer[:, :, :room] if missing else buffer
