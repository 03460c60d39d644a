"""Running sequences whose keys and values are quantised, or kept in a window: alone, together, and resumed."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache
from mlx_lm.utils import load_model

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    Checkpoint,
    Completion,
    EngineSettings,
    GenerateRequest,
    Generator,
    LoadOptions,
    ModelError,
    SamplingParams,
    Settings,
)
from vllm_mlx_core.engine import state_cost
from vllm_mlx_core.engine.converted import convert
from vllm_mlx_core.engine.prompt_state import PromptState
from vllm_mlx_core.engine.state_codec import codec_of
from vllm_mlx_core.host import Host
from vllm_mlx_core.testing import _tiny_configs
from vllm_mlx_core.testing.tiny import write_tiny_model

pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()
WINDOW = 64
LENGTHS = (20, 50, 3, 100, 200, 64, 63, 65, 5)
GROUP = 32


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    """A tiny model whose heads are wide enough to be quantised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_tiny_configs.CONFIGS, "llama", {**_tiny_configs.CONFIGS["llama"], "head_dim": 64})
        return write_tiny_model("llama", tmp_path_factory.mktemp("wide") / "llama")


def settings(cache: str = "off", **engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(cache=cache, **engine))


async def ask(engine: AsyncEngine, prompt: list[int], max_tokens: int, priority: int = 0) -> Completion:
    completion = Completion()
    request = GenerateRequest(
        request_id=f"r{next(NUMBERS)}",
        model=engine.model.id,
        prompt=prompt,
        sampling=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=1),
        priority=priority,
    )
    async for step in await engine.loaded.client.generate(request):
        for output in step:
            completion.add(output)
    return completion


def prompts() -> list[list[int]]:
    return [[(7 * i + i * i + 11 * n) % 180 + 3 for i in range(length)] for n, length in enumerate(LENGTHS)]


def by_mlx_lm(folder: Path, prompt: list[int], count: int, **how) -> list[int]:
    """What mlx-lm's own generation says with such a window, or with such keys and values."""
    model, _ = load_model(folder)
    layers = len(model.layers)
    if "window" in how:
        cache = [RotatingKVCache(max_size=how["window"], keep=4) for _ in range(layers)]
    else:
        cache = [QuantizedKVCache(group_size=GROUP, bits=how["bits"]) for _ in range(layers)]
    # Longer steps of its own hide the first tokens that a window keeps from all but the last.
    chunk = 1 if "window" in how else 2048
    steps = generate_step(mx.array(prompt), model, max_tokens=count, prompt_cache=cache, prefill_step_size=chunk)
    return [int(token) for token, _ in steps]


async def together(engine: AsyncEngine, count: int) -> list[list[int]]:
    answers = await asyncio.gather(*(ask(engine, prompt, count + 7 * n) for n, prompt in enumerate(prompts())))
    return [list(each.token_ids[:count]) for each in answers]


@pytest.mark.parametrize("self_test", [True, False])
async def test_windows_together_say_what_mlx_lm_says_with_such_a_window(self_test, tiny_model):
    folder = tiny_model("llama")
    expected = [by_mlx_lm(folder, prompt, 90, window=WINDOW) for prompt in prompts()]
    async with AsyncEngine(folder, settings=settings(max_kv_size=WINDOW, self_test=self_test)) as engine:
        assert engine.loaded.ready.mode == "batched, prompts one at a time"
        assert await together(engine, 90) == expected


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen3_next", "deepseek_v3", "gpt_oss"])
async def test_a_window_that_is_not_full_changes_nothing(architecture, tiny_model):
    async with AsyncEngine(tiny_model(architecture), settings=settings()) as engine:
        expected = await together(engine, 20)
    async with AsyncEngine(tiny_model(architecture), settings=settings(max_kv_size=1024)) as engine:
        assert await together(engine, 20) == expected


@pytest.mark.parametrize("budget", [2048, 100, 16])
async def test_what_a_window_gives_does_not_depend_on_how_a_prompt_is_cut(budget, tiny_model):
    prompt = [(i * i + 7 * i) % 180 + 3 for i in range(304)]
    expected = by_mlx_lm(tiny_model("llama"), prompt, 30, window=WINDOW)
    chosen = settings(max_kv_size=WINDOW, max_num_batched_tokens=budget)
    async with AsyncEngine(tiny_model("llama"), settings=chosen) as engine:
        assert list((await ask(engine, prompt, 30)).token_ids) == expected


@pytest.mark.parametrize("cache", ["radix", "lru"])
async def test_a_conversation_goes_on_from_a_full_window(cache, tiny_model):
    (prompt,) = (each for each in prompts() if len(each) == 100)
    more = [9, 8, 7, 6, 5]
    async with AsyncEngine(tiny_model("llama"), settings=settings(cache, max_kv_size=WINDOW)) as engine:
        first = await ask(engine, prompt, 40)
        again = await ask(engine, [*prompt, *first.token_ids, *more], 40)
        assert again.usage is not None
        assert again.usage.cached_tokens >= 100
        expected = by_mlx_lm(tiny_model("llama"), prompt, 40, window=WINDOW)
        assert list(first.token_ids) == expected
        assert len(again.token_ids) == 40


async def test_a_preempted_window_goes_on_as_if_nothing_had_happened(tiny_model):
    chosen = settings("lru", max_kv_size=WINDOW, max_num_seqs=2)
    asked = prompts()[3:5]
    async with AsyncEngine(tiny_model("llama"), settings=chosen) as engine:
        alone = [await ask(engine, prompt, 60) for prompt in asked]
    async with AsyncEngine(tiny_model("llama"), settings=chosen) as engine:
        running = [asyncio.ensure_future(ask(engine, prompt, 60, priority=5)) for prompt in asked]
        await asyncio.sleep(0.1)
        for number in range(3):
            await ask(engine, [5, 6, 7 + number], 3)
        assert [(await each).token_ids for each in running] == [each.token_ids for each in alone]


def test_a_window_stops_growing(generator):
    chosen = EngineSettings(max_kv_size=512)
    bounded = state_cost.learn(convert(generator("llama"), chosen))
    assert bounded.state(10_000) == bounded.state(512)
    converted = convert(generator("llama"), chosen)
    layers, sizes = converted.make_cache(), []
    for _ in range(40):
        converted.forward(mx.array([list(range(3, 103))], dtype=mx.int32), layers)
        converted.forward(mx.array([[5]], dtype=mx.int32), layers)
        sizes.append(sum(layer.nbytes for layer in layers))
    assert sizes[-1] == max(sizes) == bounded.state(10_000)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("self_test", [True, False])
async def test_quantised_rows_together_say_what_mlx_lm_says_alone(bits, self_test, wide):
    expected = [by_mlx_lm(wide, prompt, 40, bits=bits) for prompt in prompts()]
    chosen = settings(kv_bits=bits, kv_group_size=GROUP, self_test=self_test)
    async with AsyncEngine(wide, settings=chosen) as engine:
        assert engine.loaded.ready.mode == "batched"
        assert await together(engine, 40) == expected


@pytest.mark.parametrize("cache", ["radix", "lru"])
async def test_r088_quantised_states_are_cached_as_they_are_and_resumed_exactly(cache, wide):
    chosen = settings(cache, kv_bits=4, kv_group_size=GROUP)
    (prompt,) = (each for each in prompts() if len(each) == 200)
    turns = [prompt, [*prompt[:150], 3, 4, 5], [*prompt, 9, 8, 7]]
    async with AsyncEngine(wide, settings=settings(kv_bits=4, kv_group_size=GROUP)) as engine:
        expected = [await ask(engine, turn, 30) for turn in turns]
    async with AsyncEngine(wide, settings=chosen) as engine:
        given = [await ask(engine, turn, 30) for turn in turns]
        stats = (await engine.loaded.client.stats()).cache
    assert [each.token_ids for each in given] == [each.token_ids for each in expected]
    assert [each.usage.cached_tokens for each in given if each.usage][1:] == [150, 200]
    assert stats is not None
    async with AsyncEngine(wide, settings=settings(cache)) as engine:
        for turn in turns:
            await ask(engine, turn, 30)
        plain = (await engine.loaded.client.stats()).cache
    assert plain is not None
    assert stats.nbytes < plain.nbytes / 3


@pytest.fixture
def wide_generator(wide) -> Generator:
    host = Host()
    host.load([])
    checkpoint = Checkpoint(wide)
    family = host.model_families.get(host.detect_family(checkpoint))
    return family(checkpoint, LoadOptions()).load_generator()


def test_states_become_bytes_that_only_a_model_with_such_caches_takes(wide_generator):
    ways = [
        EngineSettings(),
        EngineSettings(kv_bits=4, kv_group_size=GROUP),
        EngineSettings(kv_bits=8, kv_group_size=GROUP),
        EngineSettings(kv_bits=8),
        EngineSettings(max_kv_size=WINDOW),
        EngineSettings(max_kv_size=2 * WINDOW),
    ]
    identities = set()
    for way in ways:
        model = convert(wide_generator, way)
        codec = codec_of(model, None)
        assert codec is not None
        identities.add(codec.identity)
        layers = model.make_cache()
        model.forward(mx.array([prompts()[3]], dtype=mx.int32), layers)
        state = PromptState(layers, 100).compact()
        snapshot = None if state.snapshot is None else codec.load_snapshot(codec.dump(state.snapshot))
        segments = [codec.load_segment(codec.dump(state.segment(*ends))) for ends in ((0, 40), (40, 100))]
        again = segments[0].join(segments[1:], snapshot)
        assert isinstance(again, PromptState)
        said = [model.forward(mx.array([[9]], dtype=mx.int32), each.layers()).tolist() for each in (state, again)]
        assert said[0] == said[1]
    assert len(identities) == len(ways)


def test_quantised_states_are_as_small_as_their_bits(wide_generator):
    loaded = wide_generator
    plain = state_cost.learn(loaded).per_token
    for bits in (4, 8):
        quantised = state_cost.learn(convert(loaded, EngineSettings(kv_bits=bits, kv_group_size=GROUP))).per_token
        assert quantised == plain * (bits + 64 / GROUP) / 32  # two float32 numbers for each group


@pytest.mark.parametrize(
    ("architecture", "why", "engine"),
    [
        ("mamba2", "no layer", {"max_kv_size": 512}),
        ("mamba2", "no layer", {"kv_bits": 8}),
        ("llama", "16 wide", {"kv_bits": 8, "kv_group_size": 32}),
    ],
)
async def test_models_that_it_does_not_fit_are_refused_at_the_start(architecture, why, engine, tiny_model):
    with pytest.raises(ModelError, match=why):
        await AsyncEngine(tiny_model(architecture), settings=settings(**engine)).start()


async def test_attention_that_takes_no_quantised_keys_is_refused_at_the_start(tmp_path, monkeypatch):
    config = {**_tiny_configs.CONFIGS["gpt_oss"], "head_dim": 64}  # it has sinks
    monkeypatch.setitem(_tiny_configs.CONFIGS, "gpt_oss", config)
    folder = write_tiny_model("gpt_oss", tmp_path / "gpt_oss")
    with pytest.raises(ModelError, match="does not take such caches"):
        await AsyncEngine(folder, settings=settings(kv_bits=8)).start()


async def test_states_kept_otherwise_come_back_from_a_disk_to_engines_that_keep_them_so(wide, tmp_path):
    prompt = [i * 17 % 180 + 3 for i in range(300)]
    ways = [{"kv_bits": 8, "kv_group_size": GROUP}, {"kv_bits": 4, "kv_group_size": GROUP}, {"max_kv_size": 64}, {}]
    said: list[list[int]] = []
    for turn in range(2):
        for number, way in enumerate(ways):
            kept = replace(settings("radix", **way), plugin_options={"ssd_cache_dir": str(tmp_path)})
            async with AsyncEngine(wide, settings=kept) as engine:
                answer = await engine.generate(prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))
            assert bool(answer.usage.cached_tokens) is bool(turn), way
            if turn:
                assert answer.token_ids == said[number], way
            said.append(answer.token_ids)
