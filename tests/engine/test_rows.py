"""Rows of a batch come and go in place, and each goes on as it would alone."""

from __future__ import annotations

import random

import mlx.core as mx
import pytest

from vllm_mlx_core.api import Generator
from vllm_mlx_core.engine import states
from vllm_mlx_core.engine.kv_rows import KVRows
from vllm_mlx_core.engine.rows import STEP
from vllm_mlx_core.testing import TINY_ARCHITECTURES

from .reading import random_prompt, state_after

BATCHED = ["llama", "qwen3_moe", "deepseek_v3", "gemma3", "qwen3_next"]


@pytest.mark.parametrize("architecture", BATCHED)
def test_each_row_goes_on_as_alone_whoever_joins_and_leaves(architecture, generator):
    model, rng = generator(architecture), random.Random(architecture)
    alone = [state_after(model, random_prompt(rng, n)) for n in (5, 70)]
    batch = states.merge(alone)
    for _ in range(30):
        what = rng.choice(["join", "leave", "step", "step"])
        if what == "join" and len(alone) < 6:
            tokens, soon = random_prompt(rng, rng.choice([1, 20, 90, 300])), rng.randrange(3)
            states.reserve(batch, len(alone) + 1 + soon)
            states.extend(batch, states.merge([state_after(model, tokens)]), rows=len(alone), more_rows=1)
            alone.append(state_after(model, tokens))
        elif what == "leave" and len(alone) > 2:
            stays = [True] * len(alone)
            stays[rng.randrange(len(alone))] = False
            rows = states.places(stays)
            states.keep(batch, rows)
            alone = [alone[row] for row in rows]
        tokens = random_prompt(rng, len(alone))
        logits = model.forward(mx.array(tokens, dtype=mx.int32)[:, None], batch)[:, -1]
        for row, (token, layers) in enumerate(zip(tokens, alone, strict=True)):
            expected = model.forward(mx.array([[token]], dtype=mx.int32), layers)[0, -1]
            assert mx.abs(logits[row] - expected).max().item() < 1e-3
    for row, layers in enumerate(alone):
        expected = model.forward(mx.array([[7]], dtype=mx.int32), layers)
        actual = model.forward(mx.array([[7]], dtype=mx.int32), states.extract(batch, row))
        assert mx.abs(actual - expected).max().item() < 1e-3


def test_the_last_rows_take_the_places_of_those_that_leave():
    assert states.places([True, False, True, True, False, True]) == [0, 5, 2, 3]
    assert states.places([False, False, True]) == [2]
    assert states.places([True, True]) == [0, 1]
    assert states.places([]) == []


def rows_of(generator: Generator, lengths: list[int]) -> states.Layers:
    return states.merge([state_after(generator, [3 + i % 180 for i in range(n)]) for n in lengths])


def test_buffers_hold_still_while_rows_come_and_go(generator):
    model = generator("llama")
    batch = rows_of(model, [40, 50])
    rows = batch[0]
    assert isinstance(rows, KVRows)
    states.reserve(batch, 4)
    states.extend(batch, rows_of(model, [60]), rows=2, more_rows=1)
    buffer = rows.keys.shape
    assert buffer[0] == 4
    states.extend(batch, rows_of(model, [20]), rows=3, more_rows=1)
    states.keep(batch, [0, 3, 2])
    states.extend(batch, rows_of(model, [100]), rows=3, more_rows=1)
    model.forward(mx.array([[4]] * 4, dtype=mx.int32), batch)
    assert rows.keys.shape == buffer
    assert rows.offset.tolist() == [41, 21, 61, 101]


def growing(layers: states.Layers, before: list[int]) -> int:
    """Return how many layers have other buffers now, and note how long they are."""
    now: list[int] = [layer.keys.shape[2] for layer in layers]
    changed = sum(a != b for a, b in zip(now, before, strict=True))
    before[:] = now
    return changed


def test_the_layers_of_a_batch_do_not_grow_in_the_same_step(generator):
    model = generator("llama")
    batch = rows_of(model, [5, 20])
    slots = [layer.keys.shape[2] for layer in batch]
    grown = []
    for _ in range(STEP):
        model.forward(mx.array([[5], [6]], dtype=mx.int32), batch)
        grown.append(growing(batch, slots))
    assert max(grown) == 1
    assert sum(grown) == len(batch)


def test_the_layers_of_a_prompt_do_not_grow_with_the_same_chunk(generator):
    model = generator("llama")
    layers = model.make_cache()
    slots = [0] * len(layers)
    grown = []
    for _ in range(3 * STEP // 16):
        with states.staggered(layers, 16):
            model.forward(mx.array([[5] * 16], dtype=mx.int32), layers)
        grown.append(growing(layers, slots))
    assert max(grown[1:]) == 1
    assert sum(grown[1:]) >= 2 * len(layers)
    expected = state_after(model, [5] * 3 * STEP)
    logits = [model.forward(mx.array([[7]], dtype=mx.int32), each) for each in (layers, expected)]
    assert mx.abs(logits[0] - logits[1]).max().item() < 1e-3


def test_a_batch_that_has_become_small_gives_memory_back(generator):
    model = generator("llama")
    batch = rows_of(model, [300] * 8)
    before = sum(layer.nbytes for layer in batch)
    states.keep(batch, [0, 7])
    assert sum(layer.nbytes for layer in batch) <= before / 4


def test_buffers_become_shorter_when_the_longest_row_has_left(generator):
    model = generator("llama")
    batch = rows_of(model, [20, 30, 1200])
    before = sum(layer.nbytes for layer in batch)
    states.keep(batch, [0, 1])
    assert sum(layer.nbytes for layer in batch) <= before / 4
    logits = model.forward(mx.array([[4], [5]], dtype=mx.int32), batch)[:, -1]
    for row, (length, token) in enumerate([(20, 4), (30, 5)]):
        alone = state_after(model, [3 + i % 180 for i in range(length)])
        expected = model.forward(mx.array([[token]], dtype=mx.int32), alone)[0, -1]
        assert mx.abs(logits[row] - expected).max().item() < 1e-4


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_plain_caches_of_every_model_become_such_rows(architecture, generator):
    layers = generator(architecture).make_cache()
    if not states.can_merge(layers):
        pytest.skip("its caches cannot be merged")
    plain = [type(cache).__name__ == "KVCache" for layer in layers for cache in states.members(layer)]
    merged = states.merge([layers, generator(architecture).make_cache()])
    assert [isinstance(c, KVRows) for layer in merged for c in states.members(layer)] == plain
