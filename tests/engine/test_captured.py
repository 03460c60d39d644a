"""Recorded decode steps give the logits that ordinary ones give, whatever happens to the batch in between."""

# mypy: disable-error-code="misc"
# mlx-lm has no types to subclass.

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import EngineSettings, Generator, SamplingParams, Settings
from vllm_mlx_core.engine import captured, states
from vllm_mlx_core.engine.captured import CapturedGenerator, room_for
from vllm_mlx_core.engine.device import has_metal
from vllm_mlx_core.engine.prompt_state import PromptState
from vllm_mlx_core.engine.selftest import self_test

from .reading import random_prompt, state_after

PLAIN = ["llama", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3"]
OTHER = ["gemma3", "mamba2", "qwen3_next", "llama4"]
CAN_COMPILE = has_metal() or shutil.which("g++") is not None


@contextmanager
def no_compiler() -> Iterator[None]:
    """Behave as MLX does on a machine without a C++ compiler."""
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()


class Counted:
    """A generator that counts its forward passes, and says that it may be recorded."""

    is_pure = True

    def __init__(self, inner: Generator) -> None:
        self._inner = inner
        self.nbytes, self.vocab_size = inner.nbytes, inner.vocab_size
        self.calls = 0

    def make_cache(self) -> list[Any]:
        return self._inner.make_cache()

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        self.calls += 1
        return self._inner.forward(tokens, layers)


class LooksAtTheBuffer(Counted):
    """What it computes depends on how large the buffers happen to be."""

    def forward(self, tokens, layers):
        return super().forward(tokens, layers) * (layers[0].keys.shape[2] / 256)


class GoesByLength(Counted):
    """Beyond 100 positions it does something else, and takes the length of what it fetched for the position."""

    def forward(self, tokens, layers):
        lengths = []

        class Spy:
            def __init__(self, layer):
                self._layer = layer

            def __getattr__(self, name):
                return getattr(self._layer, name)

            def update_and_fetch(self, keys, values):
                fetched = self._layer.update_and_fetch(keys, values)
                lengths.append(fetched[0].shape[2])
                return fetched

        logits = super().forward(tokens, [Spy(layer) for layer in layers])
        return logits * (1.0 if max(lengths) <= 100 else 1.5)


class WantsNumbers(Counted):
    """It takes its position as a Python number, as some models do."""

    def forward(self, tokens, layers):
        offset = layers[0].offset
        assert (offset if isinstance(offset, int) else offset.max().item()) >= 0
        return super().forward(tokens, layers)


class Twin:
    """The same batch twice: one decodes with recorded steps, one without."""

    def __init__(self, plain: Generator, recorded: CapturedGenerator, prompts: list[list[int]]) -> None:
        self.sides = [(g, states.merge([state_after(g, p) for p in prompts])) for g in (plain, recorded)]
        self.rows = len(prompts)

    def step(self, rng: random.Random) -> None:
        """Decode one token per row on both sides and compare."""
        tokens = mx.array(random_prompt(rng, self.rows), dtype=mx.int32)[:, None]
        expected, actual = (generator.forward(tokens, layers) for generator, layers in self.sides)
        assert actual.shape == expected.shape
        assert mx.allclose(actual, expected, atol=1e-4, rtol=1e-4).item()

    def join(self, tokens: list[int]) -> None:
        for generator, layers in self.sides:
            states.extend(layers, states.merge([state_after(generator, tokens)]), rows=self.rows, more_rows=1)
        self.rows += 1

    def keep(self, rows: list[int]) -> None:
        for _, layers in self.sides:
            states.keep(layers, rows)
        self.rows = len(rows)


@pytest.mark.parametrize("architecture", PLAIN)
def test_a_churning_batch_gives_the_logits_of_ordinary_steps(architecture, generator):
    rng = random.Random(architecture)
    plain = generator(architecture)
    twin = Twin(plain, CapturedGenerator(plain), [random_prompt(rng, n) for n in (60, 3, 40)])
    for _ in range(12):  # across the room of 64 positions
        twin.step(rng)
    twin.join(random_prompt(rng, 100))  # longer than the others
    for _ in range(3):
        twin.step(rng)
    twin.keep([3, 1])  # the one that joined last comes first now
    for _ in range(30):
        twin.step(rng)
    twin.keep([1])
    for _ in range(3):
        twin.step(rng)


@pytest.mark.parametrize("architecture", PLAIN)
def test_one_row_gives_the_logits_of_ordinary_steps_and_can_go_back(architecture, generator):
    rng = random.Random(architecture)
    plain = generator(architecture)
    recorded = CapturedGenerator(plain)
    tokens = random_prompt(rng, 130)
    expected = plain.forward(mx.array([tokens], dtype=mx.int32), plain.make_cache())[0]
    layers = state_after(recorded, tokens[:50])

    def go_on(start: int, end: int) -> None:
        for position in range(start, end):
            logits = recorded.forward(mx.array([[tokens[position]]], dtype=mx.int32), layers)[0, 0]
            assert mx.allclose(logits, expected[position], atol=1e-4, rtol=1e-4).item()

    go_on(50, 130)
    kept = PromptState(layers, 130).compact()
    layers = kept.truncate(70).layers()
    go_on(70, 90)
    layers = kept.truncate(120).layers()  # the kept state is what it was
    go_on(120, 130)


@pytest.mark.skipif(not CAN_COMPILE, reason="MLX compiles nothing without a C++ compiler")
def test_a_step_is_recorded_once_for_each_shape(generator):
    counted = Counted(generator("qwen3"))
    recorded = CapturedGenerator(counted)
    rng = random.Random(1)
    layers = state_after(recorded, random_prompt(rng, 50))
    for _ in range(30):  # from 51 to 80: rooms of 64 and 128
        mx.eval(recorded.forward(mx.array([[5]], dtype=mx.int32), layers))
    assert counted.calls == 1 + 2
    assert recorded.num_graphs == 2
    layers = state_after(recorded, random_prompt(rng, 70))
    mx.eval(recorded.forward(mx.array([[5]], dtype=mx.int32), layers))
    assert counted.calls == 4, "another sequence of that length uses the same graph"


@pytest.mark.skipif(not CAN_COMPILE, reason="MLX compiles nothing without a C++ compiler")
def test_the_least_recently_used_graph_is_forgotten(generator, monkeypatch):
    monkeypatch.setattr(captured, "MAX_GRAPHS", 2)
    counted = Counted(generator("qwen3"))
    recorded = CapturedGenerator(counted)
    by_length = {n: state_after(recorded, random_prompt(random.Random(n), n)) for n in (10, 100, 200)}

    def calls(length: int) -> int:
        before = counted.calls
        mx.eval(recorded.forward(mx.array([[5]], dtype=mx.int32), by_length[length]))
        return counted.calls - before

    assert [calls(n) for n in (10, 100, 10, 200, 10, 100)] == [1, 1, 0, 1, 0, 1]
    assert recorded.num_graphs == 2


@pytest.mark.parametrize("architecture", OTHER)
def test_other_layers_take_the_ordinary_path(architecture, generator):
    counted = Counted(generator(architecture))
    recorded = CapturedGenerator(counted)
    layers = state_after(recorded, [5, 6, 7])
    for _ in range(3):
        mx.eval(recorded.forward(mx.array([[5]], dtype=mx.int32), layers))
    assert counted.calls == 4
    assert not recorded.num_graphs
    assert not self_test(counted).captured


def test_an_empty_state_takes_the_ordinary_path(generator):
    plain = generator("qwen3")
    recorded = CapturedGenerator(plain)
    tokens = mx.array([[5]], dtype=mx.int32)
    logits = recorded.forward(tokens, recorded.make_cache())
    assert mx.array_equal(logits, plain.forward(tokens, plain.make_cache())).item()


def assert_right_without_graphs(plain: Generator) -> None:
    rng = random.Random(1)
    recorded = CapturedGenerator(plain)
    twin = Twin(plain, recorded, [random_prompt(rng, n) for n in (9, 4)])
    for _ in range(4):
        twin.step(rng)
    assert not recorded.num_graphs
    assert not self_test(plain).captured


def test_a_model_that_wants_numbers_is_not_recorded_and_still_right(generator):
    assert_right_without_graphs(WantsNumbers(generator("qwen3")))


def test_without_a_compiler_nothing_is_recorded_and_all_is_right(generator):
    with no_compiler():
        assert_right_without_graphs(generator("qwen3"))


def test_the_self_test_lets_only_right_and_willing_models_be_recorded(generator):
    right = Counted(generator("qwen3"))
    assert self_test(right).captured == CAN_COMPILE
    assert not self_test(right, may_capture=False).captured
    assert not self_test(LooksAtTheBuffer(generator("qwen3"))).captured
    assert not self_test(GoesByLength(generator("qwen3"))).captured
    unwilling = Counted(generator("qwen3"))
    unwilling.is_pure = False
    assert not self_test(unwilling).captured


@pytest.mark.anyio
async def test_enforce_eager_gives_the_same_tokens(tiny_model):
    sampling = SamplingParams(max_tokens=100, temperature=0, ignore_eos=True)
    answers = []
    for eager in (False, True):
        settings = Settings(engine=EngineSettings(enforce_eager=eager))
        async with AsyncEngine(tiny_model("qwen3"), settings=settings) as engine:
            answers.append((await engine.generate([5, 6, 7], sampling)).token_ids)
            assert engine.loaded.client.health()["captured"] == (CAN_COMPILE and not eager)
    assert answers[0] == answers[1]


@given(st.integers(1, 1_000_000))
def test_room_grows_in_steps_of_an_eighth_at_most(length):
    room = room_for(length)
    assert length <= room < length + max(64, length / 8 + 1)
    assert room % 64 == 0
    assert room_for(room) == room
