"""Parts of states as bytes (``api.StateCodec``), and which model they are of. Engine thread only."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, Literal

import mlx.core as mx

from vllm_mlx_core.api import (
    Generator,
    IdentifiedGenerator,
    KVQuantization,
    KVSegment,
    KVSnapshot,
    StateCodec,
    Tensor,
    Tensors,
)

from .fingerprint import fingerprint
from .kept_array import KeptArray
from .prompt_state import KeptPair, Segment, Snapshot
from .raw_bytes import to_array, to_tensors
from .states import PLAIN, members

_ABOUT = "about"
"""The tensor that holds everything which is no array, as JSON."""
_BITS: dict[int, Literal[4, 8]] = {4: 4, 8: 8}


def codec_of(generator: Generator, quantization: KVQuantization | None) -> StateCodec | None:
    """Return the codec of a model's states, or None if a later process could not know the model again."""
    return MLXStateCodec(generator, quantization) if isinstance(generator, IdentifiedGenerator) else None


class MLXStateCodec:
    """A part is its arrays by number, and what is known of them.

    A segment's are the keys and values of each plain KV cache. A snapshot's are those of mlx-lm's ``cache.state``,
    which are put into what ``make_cache`` returns, provided that it is of the same classes.
    """

    def __init__(self, generator: IdentifiedGenerator, quantization: KVQuantization | None) -> None:
        self._generator = generator
        self._quantization = quantization

    @cached_property
    def identity(self) -> str:
        """The model's fingerprint. Slow when it is first asked for."""
        return fingerprint(self._generator, self._quantization)

    def dump(self, part: KVSegment | KVSnapshot) -> Tensors:
        """Return a part as bytes. Waits for the device; does not mutate. Raises ValueError if it cannot."""
        arrays: list[mx.array] = []
        match part:
            case Segment():
                about = _about_segment(part, arrays)
            case Snapshot():
                about = _about_snapshot(part, arrays)
            case _:
                raise ValueError(f"a {type(part).__name__} is no part of this engine's states")
        text = json.dumps(about).encode()
        named = {str(number): tensor for number, tensor in enumerate(to_tensors(arrays))}
        return {_ABOUT: Tensor("U8", (len(text),), text), **named}

    def load_segment(self, tensors: Tensors) -> Segment:
        """Return the segment that these were made of. Lazy. Raises ValueError if they are of none of this model."""
        about, arrays = _parse(tensors)
        try:
            num_tokens, places = int(about["num_tokens"]), frozenset(map(int, about["places"] or ()))
            pairs = [KeptPair(*(_take(count, arrays) for count in pair)) for pair in about["pairs"]]
            is_bare = about["places"] is not None
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"these are no segment: {error!r}") from error
        flat = [array for pair in pairs for kept in pair for array in kept.arrays]
        if any(array.ndim != 4 or array.shape[0] != 1 or array.shape[2] != num_tokens for array in flat):
            raise ValueError(f"these are no keys and values of {num_tokens} tokens")
        if not is_bare:
            return Segment(pairs, num_tokens, None)
        layers = self._generator.make_cache()
        caches = [cache for layer in layers for cache in members(layer)]
        if len(places) != len(pairs) or any(p >= len(caches) or type(caches[p]) not in PLAIN for p in places):
            raise ValueError("these are keys and values of other layers than the model has")
        return Segment(pairs, num_tokens, Snapshot(layers, places, num_tokens))

    def load_snapshot(self, tensors: Tensors) -> Snapshot:
        """Return the snapshot that these were made of. Lazy. Raises ValueError if they are of none of this model."""
        about, arrays = _parse(tensors)
        layers = self._generator.make_cache()
        caches = [cache for layer in layers for cache in members(layer)]
        try:
            num_tokens, places = int(about["num_tokens"]), frozenset(map(int, about["places"]))
            stored = about["caches"]
            if [name for name, _ in stored] != [type(cache).__name__ for cache in caches]:
                raise ValueError("these are states of other caches than the model has")
            for cache, (_, tree) in zip(caches, stored, strict=True):
                if tree is not None:
                    cache.state = _to_state(tree, arrays)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"these are no snapshot: {error!r}") from error
        return Snapshot(layers, places, num_tokens)


def _about_segment(segment: Segment, arrays: list[mx.array]) -> dict[str, Any]:
    pairs = []
    for pair in segment.pairs:
        for kept in pair:
            arrays += kept.arrays
        pairs.append([_how(kept) for kept in pair])
    frame = segment.frame
    return {
        "num_tokens": segment.num_tokens,
        "pairs": pairs,
        "places": None if frame is None else sorted(frame.places),
    }


def _how(kept: KeptArray) -> list[int] | None:
    """Return how an array is quantised: bits, group size, and the length from which arrays are."""
    how = kept.quantization
    return None if how is None else [how.bits, how.group_size, how.min_tokens]


def _take(how: list[int] | None, arrays: list[mx.array]) -> KeptArray:
    """Return the next one of ``arrays``, which are taken from the front. Mutates."""
    if how is None:
        return KeptArray.of(arrays.pop(0))
    bits, group_size, min_tokens = how
    quantization = KVQuantization(bits=_BITS[bits], group_size=group_size, min_tokens=min_tokens)
    return KeptArray((arrays.pop(0), arrays.pop(0), arrays.pop(0)), quantization)


def _about_snapshot(snapshot: Snapshot, arrays: list[mx.array]) -> dict[str, Any]:
    caches = [cache for layer in snapshot.layers() for cache in members(layer)]
    return {
        "num_tokens": snapshot.num_tokens,
        "places": sorted(snapshot.places),
        "caches": [
            (type(cache).__name__, None if cache.empty() else _from_state(cache.state, arrays)) for cache in caches
        ],
    }


def _from_state(value: Any, arrays: list[mx.array]) -> Any:
    """Return a cache's state as JSON, its arrays by their numbers in ``arrays``, to which they are added."""
    match value:
        case mx.array():
            arrays.append(value)
            return {"array": len(arrays) - 1}
        case None | bool() | int() | float() | str():
            return {"value": value}
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [_from_state(each, arrays) for each in value]}
    raise ValueError(f"a cache keeps a {type(value).__name__}, which has no form in bytes")


def _to_state(tree: dict[str, Any], arrays: list[mx.array]) -> Any:
    ((kind, value),) = tree.items()
    match kind:
        case "array":
            return arrays[value]
        case "value":
            return value
        case "list":
            return [_to_state(each, arrays) for each in value]
        case "tuple":
            return tuple(_to_state(each, arrays) for each in value)
    raise ValueError(f"{kind!r} is no kind of value")


def _parse(tensors: Tensors) -> tuple[dict[str, Any], list[mx.array]]:
    """Return what is known of a part, and its arrays."""
    try:
        about = json.loads(bytes(tensors[_ABOUT].data))
        arrays = [to_array(tensors[str(number)]) for number in range(len(tensors) - 1)]
    except KeyError as error:
        raise ValueError(f"these are no part of a state: {error} is missing") from error
    if not isinstance(about, dict):
        raise ValueError("these are no part of a state")
    return about, arrays
