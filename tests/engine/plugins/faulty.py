"""A plugin with faults to order: the scripted model, but some characters break the forward pass that reads them.

``☠`` raises when a decode step reads it, ``☢`` turns the logits of its row into NaN, ``⚡`` raises when a prompt that
holds it is read, ``⌛`` raises once only, then works, and ``✂`` and ``⇤`` make a decode step return a row or a logit
too few.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from vllm_mlx_core.api import Generator, Registrar, TextProcessor, hookimpl
from vllm_mlx_core.testing.scripted_family import ScriptedFamily

CHARACTERS = "☠☢⚡⌛✂⇤"


class FaultyGenerator:
    def __init__(self, inner: Generator, ids: dict[str, int]) -> None:
        self._inner = inner
        self._ids = ids
        self._transient = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        read: list[list[int]] = tokens.tolist()
        everything = {token for row in read for token in row}
        if tokens.shape[1] == 1 and self._ids["☠"] in everything:
            self._inner.forward(tokens, layers)  # the caches have already moved when it fails
            raise RuntimeError("a decode step broke")
        if tokens.shape[1] > 1 and self._ids["⚡"] in everything:
            raise RuntimeError("a prefill broke")
        if tokens.shape[1] == 1 and self._ids["⌛"] in everything and self._transient:
            self._transient = False
            raise RuntimeError("a decode step broke once")
        logits = self._inner.forward(tokens, layers)
        if tokens.shape[1] == 1:
            poisoned = mx.array([row[0] == self._ids["☢"] for row in read])
            logits = mx.where(poisoned[:, None, None], mx.nan, logits)
            if self._ids["✂"] in everything:
                logits = logits[1:]
            if self._ids["⇤"] in everything:
                logits = logits[..., 1:]
        return logits


class FaultyFamily(ScriptedFamily):
    def load_processor(self) -> TextProcessor:
        return self._processor

    def load_generator(self) -> Generator:
        ids = {c: self._processor.tokenizer.encode(c)[0] for c in CHARACTERS}
        return FaultyGenerator(super().load_generator(), ids)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._processor = super().load_processor()


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    registrar.add("model_families", "faulty", FaultyFamily)


@hookimpl
def vllm_mlx_detect_family() -> str:
    return "faulty"
