"""The self-test against models that are wrong in exactly one way: it picks the mode in which the answers are right."""

# mypy: disable-error-code="misc, has-type"
# mlx-lm has no types to subclass.

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import BatchKVCache, KVCache

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core.api import CacheSpec, Checkpoint, EngineSettings, Generator, LoadOptions
from vllm_mlx_core.engine.core import EngineCore
from vllm_mlx_core.engine.messages import SamplingSpec, StepResult, Submit
from vllm_mlx_core.engine.selftest import self_test
from vllm_mlx_core.host import Host

BATCHED = "batched"
EQUAL = "batched, prompts of equal length together"
SOLO_PREFILL = "batched, prompts one at a time"
NO_REUSE = "batched, no prefix reuse"
ALONE = "one row at a time"


class Wrong:
    """A right model; its subclasses are wrong in one way each."""

    def __init__(self, inner: Generator) -> None:
        self._inner = inner
        self.nbytes = inner.nbytes
        self.vocab_size = inner.vocab_size

    def make_cache(self) -> list[Any]:
        return self._inner.make_cache()

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        return self._inner.forward(tokens, layers)


class MixesRowsInDecode(Wrong):
    def forward(self, tokens, layers):
        logits = super().forward(tokens, layers)
        return logits + 0.3 * mx.roll(logits, 1, axis=0) if tokens.shape[1] == 1 and len(tokens) > 1 else logits


class RaisesInABatch(Wrong):
    def forward(self, tokens, layers):
        if len(tokens) > 1:
            raise RuntimeError("one row only")
        return super().forward(tokens, layers)


class RaggedPrefill(Wrong):
    def forward(self, tokens, layers):
        if tokens.shape[1] > 1 and 0 < sum(row[-1] == 0 for row in tokens.tolist()) < len(tokens):
            tokens = mx.concatenate([tokens[:, :1] + 1, tokens[:, 1:]], axis=1)
        return super().forward(tokens, layers)


class AnyPrefillTogether(Wrong):
    def forward(self, tokens, layers):
        if tokens.shape[1] > 1 and len(tokens) > 1:
            tokens = mx.roll(tokens, 1, axis=0)
        return super().forward(tokens, layers)


class _Cache(KVCache):
    batch: type[BatchKVCache]

    def merge(self, caches):
        merged = BatchKVCache.merge(caches)
        merged.__class__ = self.batch
        return merged


class WrongCaches(Wrong):
    batch: type[BatchKVCache]

    def make_cache(self):
        kind = type("Cache", (_Cache,), {"batch": self.batch})
        return [kind() for _ in super().make_cache()]


class WrongExtract(WrongCaches):
    class batch(BatchKVCache):
        def extract(self, idx):
            return super().extract((idx + 1) % len(self.left_padding))


class ExtractLosesAToken(WrongCaches):
    class batch(BatchKVCache):
        def extract(self, idx):
            cache = super().extract(idx)
            cache.keys = mx.roll(cache.keys, 1, axis=2)
            return cache


class WrongFilter(WrongCaches):
    class batch(BatchKVCache):
        def filter(self, batch_indices):
            super().filter(batch_indices)
            self.keys = self.keys[::-1]


class WrongExtend(WrongCaches):
    class batch(BatchKVCache):
        def extend(self, other):
            other.keys = other.keys * 0.5
            super().extend(other)


class TrimLies(Wrong):
    class Cache(KVCache):
        def trim(self, n):
            return n

    def make_cache(self):
        return [self.Cache() for _ in super().make_cache()]


class CannotMergeAndTrimLies(TrimLies):
    class Cache(TrimLies.Cache):
        @property
        def merge(self):
            raise AttributeError("merge")


@pytest.fixture
def inner(tiny_model) -> Generator:
    host = Host()
    host.load([])
    checkpoint = Checkpoint(tiny_model("qwen3"))
    return host.model_families.get(host.detect_family(checkpoint))(checkpoint, LoadOptions()).load_generator()


def prompts() -> list[list[int]]:
    lengths = [1, 5, 5, 12, 30, 12, 5]
    made = [[(salt * 37 + i * 11) % 180 + 3 for i in range(length)] for salt, length in enumerate(lengths)]
    return [*made, [*made[4], 9, 8, 7], made[4]]


def alone(generator: Generator, prompt: list[int], count: int) -> list[int]:
    layers = generator.make_cache()
    logits = generator.forward(mx.array([prompt], dtype=mx.int32), layers)
    tokens = [int(mx.argmax(logits[0, -1]).item())]
    while len(tokens) < count:
        logits = generator.forward(mx.array([tokens[-1:]], dtype=mx.int32), layers)
        tokens.append(int(mx.argmax(logits[0, -1]).item()))
    return tokens


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (Wrong, BATCHED),
        (MixesRowsInDecode, ALONE),
        (RaisesInABatch, ALONE),
        (RaggedPrefill, EQUAL),
        (AnyPrefillTogether, SOLO_PREFILL),
        (WrongExtract, NO_REUSE),
        (ExtractLosesAToken, NO_REUSE),
        (TrimLies, NO_REUSE),
        (CannotMergeAndTrimLies, ALONE + ", no prefix reuse"),
        (WrongFilter, ALONE),
        (WrongExtend, ALONE),
    ],
)
def test_a_model_that_is_wrong_in_one_way_is_served_in_a_way_that_is_right(kind, mode, inner):
    generator = kind(inner)
    found = self_test(generator)
    assert str(found) == mode
    assert bool(found.reason) == (mode != BATCHED)

    tokens: dict[int, list[int]] = {}

    def note(step: StepResult) -> None:
        for update in step.updates:
            assert update.error is None
            tokens.setdefault(update.sequence_id, []).extend(update.tokens)

    core = EngineCore(generator, EngineSettings(max_num_batched_tokens=64), found, LRUCache(CacheSpec()), note)
    waiting = list(enumerate(prompts()))
    while waiting or core.has_work:
        for number, prompt in waiting[:2]:  # they come and go while others run
            core.handle(
                Submit(
                    sequence_id=number,
                    request_id=str(number),
                    prompt=prompt,
                    max_tokens=4 + 3 * (number % 4),
                    sampling=SamplingSpec(temperature=0),
                )
            )
        del waiting[:2]
        core.step()
    core.rest()
    for number, prompt in enumerate(prompts()):
        assert tokens[number] == alone(inner, prompt, 4 + 3 * (number % 4)), number
