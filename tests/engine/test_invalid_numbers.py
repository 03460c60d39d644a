"""A request whose numbers are invalid fails alone: the states it leaves behind harm nobody who shares its prefix."""

# mypy: disable-error-code="misc"
# mlx has no types to subclass.

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core.api import CacheSpec, EngineSettings
from vllm_mlx_core.engine.captured import CapturedGenerator
from vllm_mlx_core.engine.core import EngineCore
from vllm_mlx_core.engine.messages import SamplingSpec, StepResult, Submit
from vllm_mlx_core.engine.prompt_state import PromptState
from vllm_mlx_core.engine.selftest import self_test

BAD_TOKEN = 77
PREFIX = list(range(10, 50))
GREEDY = SamplingSpec(temperature=0)


@pytest.fixture
def poisoned(generator):
    """Return a generator for which one token has no numbers, as after an overflow in half precision."""
    loaded = generator("qwen3")
    mode = self_test(loaded)
    decoder = loaded._model.model
    table = mx.array(decoder.embed_tokens.weight)
    table[BAD_TOKEN] = mx.nan

    class Embedding(nn.Embedding):
        def __call__(self, tokens: mx.array) -> mx.array:
            return table[tokens]

    embedding = Embedding(*table.shape)
    embedding.weight = decoder.embed_tokens.weight
    decoder.embed_tokens = embedding
    return loaded, mode


class Answers:
    """An engine with a prefix cache, asked one prompt at a time."""

    def __init__(self, poisoned: Any, *, captured: bool, budget: int) -> None:
        generator, mode = poisoned
        self._updates: list[Any] = []
        self._engine = EngineCore(
            generator,
            EngineSettings(max_num_batched_tokens=budget),
            replace(mode, captured=captured),
            LRUCache(CacheSpec()),
            self._note,
        )

    def _note(self, step: StepResult) -> None:
        self._updates += step.updates

    def ask(self, prompt: list[int], max_tokens: int, sampling: SamplingSpec = GREEDY) -> tuple[list[int], str, int]:
        """Return tokens, finish and how many tokens came from the cache."""
        self._updates.clear()
        submit = Submit(sequence_id=1, request_id="1", prompt=prompt, max_tokens=max_tokens, sampling=sampling)
        self._engine.handle(submit)
        while self._engine.has_work:
            self._engine.step()
        self._engine.rest()
        tokens = [token for update in self._updates for token in update.tokens]
        return tokens, self._updates[-1].finish, max(update.cached_tokens for update in self._updates)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("budget", [40, 2048])
@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_poisoned_request_does_not_poison_its_prefix(poisoned, captured, budget, max_tokens):
    expected, *_ = Answers(poisoned, captured=captured, budget=budget).ask([*PREFIX, 5], 5)
    engine = Answers(poisoned, captured=captured, budget=budget)
    assert engine.ask([*PREFIX, BAD_TOKEN, 5, 6, 7, 8], max_tokens)[1] == "error"
    assert engine.ask([*PREFIX, 5], 5)[:2] == (expected, "length")


@pytest.mark.parametrize("budget", [10, 2048])
@pytest.mark.parametrize("max_tokens", [0, 5])
def test_a_prompt_without_numbers_is_not_scored(poisoned, budget, max_tokens):
    engine = Answers(poisoned, captured=True, budget=budget)
    asks = SamplingSpec(temperature=0, prompt_logprobs=2)
    assert engine.ask([*PREFIX, BAD_TOKEN, 5, 6], max_tokens, asks) == ([], "error", 0)
    assert engine.ask([*PREFIX, 5], max_tokens, asks)[1] == "length"


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_a_sound_request_leaves_its_prefix_whatever_its_length(poisoned, max_tokens):
    engine = Answers(poisoned, captured=True, budget=2048)
    assert engine.ask([*PREFIX, 5, 6], max_tokens)[1] == "length"
    assert engine.ask([*PREFIX, 5, 6, 7], 3)[2] >= len(PREFIX) + 2 - 1


def test_what_a_state_has_dropped_is_gone(poisoned):
    generator, _ = poisoned
    layers = generator.make_cache()
    generator.forward(mx.array([PREFIX], dtype=mx.int32), layers)
    generator.forward(mx.array([[BAD_TOKEN]], dtype=mx.int32), layers)
    kept = PromptState(layers, len(PREFIX) + 1).compact().truncate(len(PREFIX))
    logits = CapturedGenerator(generator).forward(mx.array([[5]], dtype=mx.int32), kept.layers())
    assert mx.isfinite(logits).all().item()
    assert kept.nbytes == PromptState(kept.layers(), len(PREFIX)).compact().nbytes, "it holds what it has read"
