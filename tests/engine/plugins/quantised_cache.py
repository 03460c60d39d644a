"""A plugin whose models keep their keys and values quantised: mlx-lm cannot merge such caches."""

from __future__ import annotations

from typing import Any

from mlx_lm.models.cache import QuantizedKVCache

from vllm_mlx_core.api import Generator, Registrar, hookimpl
from vllm_mlx_models.text import TextFamily


class QuantisedCacheFamily(TextFamily):
    def load_generator(self) -> Generator:
        generator = super().load_generator()
        layers = len(generator.make_cache())

        def make_cache() -> list[Any]:
            return [QuantizedKVCache(group_size=32, bits=8) for _ in range(layers)]

        generator.make_cache = make_cache  # type: ignore[method-assign]
        return generator


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    registrar.add("model_families", "quantised-cache", QuantisedCacheFamily)


@hookimpl
def vllm_mlx_detect_family() -> str:
    return "quantised-cache"
