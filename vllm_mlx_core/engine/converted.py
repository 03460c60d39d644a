"""Other caches in the place of a model's plain ones: quantised, or windows of a fixed size. Engine thread only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache

from vllm_mlx_core.api import EngineSettings, Generator, IdentifiedGenerator, ModelError

from .quantized_rows import QuantizedRow
from .states import Layers, members
from .window_rows import KEPT, WindowRow


class ConvertedGenerator:
    """A generator whose ``make_cache`` has quantised caches or windows where another's has plain ones. Same contract.

    Layers that have windows of their own, or a recurrent state, keep them.
    """

    def __init__(self, generator: Generator, settings: EngineSettings) -> None:
        self._generator = generator
        self._settings = settings

    @property
    def nbytes(self) -> int:
        """Memory held by the weights, in bytes."""
        return self._generator.nbytes

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return self._generator.vocab_size

    def make_cache(self) -> Layers:
        """Return an empty state for one sequence."""
        return [self._converted(layer) for layer in self._generator.make_cache()]

    def forward(self, tokens: mx.array, layers: Layers) -> mx.array:
        """Read ``tokens`` (int32, [rows, length]) and return logits [rows, length, vocab]. Mutates ``layers``."""
        return self._generator.forward(tokens, layers)

    def _converted(self, layer: Any) -> Any:
        if isinstance(layer, CacheList):
            return CacheList(*map(self._converted, layer.caches))
        if type(layer) is not KVCache:
            return layer
        settings = self._settings
        if settings.max_kv_size is not None:
            return WindowRow(settings.max_kv_size, KEPT)
        return QuantizedRow(settings.kv_group_size, settings.kv_bits or 8)


class IdentifiedConvertedGenerator(ConvertedGenerator):
    """One whose states a later process can know again (``api.IdentifiedGenerator``)."""

    def __init__(self, generator: IdentifiedGenerator, settings: EngineSettings) -> None:
        super().__init__(generator, settings)
        self._identified = generator

    @property
    def architecture(self) -> str:
        """What ``forward`` depends on beside the weights, and what the caches keep."""
        settings = self._settings
        if settings.max_kv_size is not None:
            return f"{self._identified.architecture} with windows of {settings.max_kv_size}, of which {KEPT} first"
        return f"{self._identified.architecture} in {settings.kv_bits} bits, in groups of {settings.kv_group_size}"

    def weights(self) -> Iterable[tuple[str, mx.array]]:
        """Yield all weights by name, in an order that is the same in every process."""
        return self._identified.weights()


def convert(generator: Generator, settings: EngineSettings) -> Generator:
    """Return the generator with the caches that the operator asked for, itself if none were.

    Raises ModelError if this model cannot have them. Reads a few tokens.
    """
    if settings.max_kv_size is None and settings.kv_bits is None:
        return generator
    option = "--kv-bits" if settings.max_kv_size is None else "--max-kv-size"
    plain = generator.make_cache()
    _read(generator, plain)
    caches = [cache for layer in plain for cache in members(layer) if type(cache) is KVCache and not cache.empty()]
    if not caches:
        raise ModelError(f"{option}: no layer of this model keeps plain keys and values.")
    if settings.max_kv_size is None:
        widths = sorted({array.shape[-1] for cache in caches for array in (cache.keys, cache.values)})
        if any(width % settings.kv_group_size for width in widths):
            raise ModelError(
                f"--kv-bits: the heads of this model are {', '.join(map(str, widths))} wide, no multiple of the group "
                f"size {settings.kv_group_size}. Choose another --kv-group-size."
            )
    converted = ConvertedGenerator(generator, settings)
    if isinstance(generator, IdentifiedGenerator):
        converted = IdentifiedConvertedGenerator(generator, settings)
    try:
        works = math.isfinite(_read(converted, converted.make_cache()))
    except Exception as error:
        raise ModelError(f"{option}: the attention of this model does not take such caches ({error}).") from error
    if not works:
        raise ModelError(f"{option}: this model computes no numbers with it.")
    return converted


def _read(generator: Generator, layers: Layers) -> float:
    """Read a prompt and a token after it; return a number that all logits are in."""
    generator.forward(mx.array([[1, 2, 3, 4, 5, 6, 7, 8]], dtype=mx.int32), layers)
    return float(mx.sum(generator.forward(mx.array([[9]], dtype=mx.int32), layers).astype(mx.float32)).item())
