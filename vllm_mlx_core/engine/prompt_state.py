"""What the prefix cache keeps of a sequence: its state after a number of tokens, and the parts it can be made of.

Plain KV caches hold something for each token; every other cache (windows, recurrent layers) is part of the snapshot.
Engine thread only.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.cache import KVCache

from vllm_mlx_core.api import Generator, KVQuantization, KVSegment, KVSnapshot, ModelError

from .kept_array import KeptArray, fits, joined
from .states import Layers, members, truncates


class KeptPair(NamedTuple):
    """Keys and values of one plain KV cache, of the same tokens."""

    keys: KeptArray
    values: KeptArray

    def cut(self, start: int, stop: int) -> KeptPair:
        """Return those of some tokens: views."""
        return KeptPair(self.keys.cut(start, stop), self.values.cut(start, stop))


class Snapshot:
    """Everything of a state but its plain KV caches (``api.KVSnapshot``): those are empty in its layers.

    ``places`` are their numbers among all caches, in order.
    """

    def __init__(self, layers: Layers, places: frozenset[int], num_tokens: int) -> None:
        self._layers = layers
        self.places = places
        self._num_tokens = num_tokens
        self._nbytes = int(sum(cache.nbytes for cache in self._others()))

    @property
    def num_tokens(self) -> int:
        """Number of tokens read at this point."""
        return self._num_tokens

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._nbytes

    @property
    def can_truncate(self) -> bool:
        """Whether every cache can drop its latest tokens."""
        return all(map(truncates, self._others()))

    @property
    def is_bare(self) -> bool:
        """Whether there is nothing in it: every cache that was used is a plain KV cache."""
        return not self._others()

    def truncate(self, num_tokens: int) -> Snapshot:
        """Return the snapshot of an earlier point. Does not mutate; raises ValueError if it cannot."""
        drop = self._num_tokens - num_tokens
        if drop < 0 or (drop and not self.can_truncate):
            raise ValueError(f"cannot go from {self._num_tokens} tokens to {num_tokens}")
        earlier = Snapshot(self.layers(), self.places, num_tokens)
        if drop and any(cache.trim(drop) != drop for cache in earlier._others()):
            raise ValueError("a layer did not trim as asked")
        return earlier

    def layers(self) -> Layers:
        """Return layers of one's own. Arrays are shared until they are written to."""
        return copy.deepcopy(self._layers)

    def filled(self, pairs: Sequence[KeptPair]) -> Layers:
        """Return layers of one's own with these keys and values in the plain KV caches."""
        layers = self.layers()
        waiting = iter(pairs)
        for place, cache in enumerate(_caches(layers)):
            if place in self.places:
                pair = next(waiting)
                cache.keys, cache.values = pair.keys.restored(), pair.values.restored()
                cache.offset = self._num_tokens
        return layers

    def compact(self) -> Snapshot:
        """Return a copy whose arrays hold nothing but themselves. Lazy; does not mutate."""
        copied = Snapshot(self.layers(), self.places, self._num_tokens)
        for cache in copied._others():
            cache.state = tree_map(lambda a: mx.contiguous(a) if isinstance(a, mx.array) else a, cache.state)
        return copied

    def arrays(self) -> list[Any]:
        """Return everything in it that MLX can evaluate."""
        return [cache.state for cache in self._others()]

    def _others(self) -> list[Any]:
        caches = enumerate(_caches(self._layers))
        return [c for place, c in caches if place not in self.places and not (type(c) is KVCache and c.empty())]


class Segment:
    """What consecutive tokens added to the plain KV caches (``api.KVSegment``).

    ``frame`` is an empty snapshot, for models that need no other.
    """

    def __init__(self, pairs: Sequence[KeptPair], num_tokens: int, frame: Snapshot | None) -> None:
        self.pairs = pairs
        self.frame = frame
        self._num_tokens = num_tokens
        self._nbytes = _size(pairs)

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return self._num_tokens

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._nbytes

    def part(self, start: int, stop: int) -> Segment:
        """Return that of some of its tokens, in memory of its own. Enqueues; does not mutate; raises ValueError."""
        return _segment(self.pairs, start, stop, self._num_tokens, self.frame)

    def join(self, after: Sequence[KVSegment], snapshot: KVSnapshot | None) -> PromptState:
        """Return the state after this segment and those that follow it. Lazy; does not mutate; raises ValueError."""
        parts = [self, *(part for part in after if isinstance(part, Segment))]
        num_tokens = sum(part.num_tokens for part in parts)
        rest = self.frame if snapshot is None else snapshot
        if len(parts) != len(after) + 1 or not isinstance(rest, Snapshot):
            raise ValueError("parts of another kind of state, or no snapshot where the model needs one")
        if snapshot is not None and snapshot.num_tokens != num_tokens:
            raise ValueError(f"a snapshot of {snapshot.num_tokens} tokens does not go with {num_tokens}")
        columns = list(zip(*(part.pairs for part in parts), strict=True))
        pairs = [KeptPair(*(joined(arrays) for arrays in zip(*column, strict=True))) for column in columns]
        return PromptState.joined(pairs, rest, num_tokens)


class PromptState:
    """A solo state after a known number of tokens, as the prefix cache keeps it (``api.KVState``)."""

    def __init__(self, layers: Layers, num_tokens: int) -> None:
        layers = copy.deepcopy(layers)
        places = [i for i, c in enumerate(_caches(layers)) if type(c) is KVCache and num_tokens == c.offset > 0]
        caches = _caches(layers)
        whole = [KeptPair(KeptArray.of(caches[i].keys), KeptArray.of(caches[i].values)) for i in places]
        pairs = [pair.cut(0, num_tokens) for pair in whole]
        for place in places:
            caches[place].keys = caches[place].values = None
            caches[place].offset = 0
        self._fill(pairs, Snapshot(layers, frozenset(places), num_tokens), num_tokens)

    @classmethod
    def joined(cls, pairs: Sequence[KeptPair], rest: Snapshot, num_tokens: int) -> PromptState:
        """Return the state of these keys and values and of what there is beside them."""
        state = cls.__new__(cls)
        if rest.num_tokens != num_tokens:  # an empty one goes with any point
            rest = Snapshot(rest.layers(), rest.places, num_tokens)
        state._fill(pairs, rest, num_tokens)
        return state

    def _fill(self, pairs: Sequence[KeptPair], rest: Snapshot, num_tokens: int) -> None:
        self._pairs = pairs
        self._rest = rest
        self._num_tokens = num_tokens
        self._nbytes = _size(pairs) + rest.nbytes

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
        return self._rest.can_truncate

    @property
    def snapshot(self) -> Snapshot | None:
        """What exists only at this point; None if every layer keeps something for each token."""
        return None if self._rest.is_bare else self._rest

    def truncate(self, num_tokens: int) -> PromptState:
        """Return the state after the first ``num_tokens`` tokens. Lazy; does not mutate; raises ValueError."""
        rest = self._rest.truncate(num_tokens)
        return PromptState.joined([pair.cut(0, num_tokens) for pair in self._pairs], rest, num_tokens)

    def segment(self, start: int, stop: int) -> Segment:
        """Return what some tokens added, in memory of its own. Enqueues; does not mutate; raises ValueError."""
        frame = self._rest if self._rest.is_bare else None
        return _segment(self._pairs, start, stop, self._num_tokens, frame)

    def compact(self, quantization: KVQuantization | None = None) -> PromptState:
        """Return a copy whose arrays hold nothing but themselves, quantised if that is asked for and it is long enough.

        Enqueues; does not mutate.

        A row taken out of a batch is a view, or still to be computed: either keeps the arrays of the whole batch alive.
        """
        pairs, rest = list(self._pairs), self._rest.compact()
        if quantization is not None and self._num_tokens >= quantization.min_tokens:
            pairs = [KeptPair(*(array.quantised(quantization) for array in pair)) for pair in pairs]
        pairs = _contiguous(pairs)
        mx.async_eval(_arrays(pairs), rest.arrays())
        return PromptState.joined(pairs, rest, self._num_tokens)

    def layers(self) -> Layers:
        """Return a solo state of its own to go on from. Arrays are shared until they are written to."""
        return self._rest.filled(self._pairs)


def check_quantization(generator: Generator, quantization: KVQuantization) -> None:
    """Raise ModelError if nothing of the model's states can be quantised in this way. Reads one token."""
    layers = generator.make_cache()
    generator.forward(mx.array([[0]], dtype=mx.int32), layers)
    arrays = _arrays(PromptState(layers, 1)._pairs)
    if not arrays:
        raise ModelError("--kv-cache-quantization: no layer of this model keeps plain keys and values.")
    if not any(fits(array, quantization) for array in arrays):
        widths = ", ".join(str(width) for width in sorted({array.shape[-1] for array in arrays}))
        raise ModelError(
            f"--kv-cache-quantization: the heads of this model are {widths} wide, no multiple of the group size "
            f"{quantization.group_size}. Choose another --kv-cache-quantization-group-size."
        )


def _segment(pairs: Sequence[KeptPair], start: int, stop: int, num_tokens: int, frame: Snapshot | None) -> Segment:
    if not 0 <= start < stop <= num_tokens:
        raise ValueError(f"there are no tokens {start} to {stop} in {num_tokens}")
    part = _contiguous([pair.cut(start, stop) for pair in pairs])
    mx.async_eval(_arrays(part))
    return Segment(part, stop - start, frame)


def _contiguous(pairs: Sequence[KeptPair]) -> list[KeptPair]:
    return [KeptPair(pair.keys.contiguous(), pair.values.contiguous()) for pair in pairs]


def _size(pairs: Sequence[KeptPair]) -> int:
    return sum(pair.keys.nbytes + pair.values.nbytes for pair in pairs)


def _arrays(pairs: Sequence[KeptPair]) -> list[mx.array]:
    return [array for pair in pairs for kept in pair for array in kept.arrays]


def _caches(layers: Layers) -> list[Any]:
    return [cache for layer in layers for cache in members(layer)]
