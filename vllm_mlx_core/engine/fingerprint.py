"""What tells the states of one model from those of all others. Engine thread only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version

import mlx.core as mx

from vllm_mlx_core.api import IdentifiedGenerator, KVQuantization

from .raw_bytes import as_bytes

STATE_FORMAT = 1
"""Counts the ways in which states were written as bytes."""

WHOLE_BYTES = 256 * 1024
"""Smaller arrays are hashed whole."""
SAMPLES = 64
SAMPLE_BYTES = 4096


def fingerprint(generator: IdentifiedGenerator, quantization: KVQuantization | None) -> str:
    """Return a text that is the same for the same model, in every process, and differs for any other.

    It depends on the weights in memory (so on an adapter and on ``--dtype`` as well), the architecture, the kinds of
    caches, how stored states are quantised, and the versions of mlx-lm and of the format. Hashing every byte of a large
    model would take minutes: of arrays above 256 KiB it is 64 pieces of 4 KiB, evenly spaced, the first and the last
    among them. Models that differ in nothing but a few values between those would pass for the same.
    """
    about = {
        "format": STATE_FORMAT,
        "mlx-lm": version("mlx-lm"),
        "architecture": generator.architecture,
        "caches": [type(layer).__name__ for layer in generator.make_cache()],
        "quantization": repr(quantization),
        "weights": _hash_weights(generator.weights()),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _hash_weights(weights: Iterable[tuple[str, mx.array]]) -> str:
    digest = hashlib.sha256()
    for name, array in weights:
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        data = as_bytes(array)
        if data.nbytes <= WHOLE_BYTES:
            digest.update(data)
            continue
        last = data.nbytes - SAMPLE_BYTES
        for number in range(SAMPLES):
            start = last * number // (SAMPLES - 1)
            digest.update(data[start : start + SAMPLE_BYTES])
    return digest.hexdigest()
