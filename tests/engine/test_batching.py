"""A batch must not change an answer: crowded, churning batches against solo runs, for every kind of cache."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import EngineSettings, SamplingParams, Settings
from vllm_mlx_core.engine import states, step_cost
from vllm_mlx_core.engine.batch import GROWTH_STEPS, Batch
from vllm_mlx_core.engine.messages import Submit
from vllm_mlx_core.engine.sequence import Sequence
from vllm_mlx_core.testing import TINY_ARCHITECTURES

pytestmark = pytest.mark.anyio

MODES = {"llama4": "one row at a time", "nemotron_h": "batched, prompts of equal length together"}


def settings(**engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(**engine))


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)


async def token_ids(engine: AsyncEngine, prompt: list[int], sampling: SamplingParams) -> list[int]:
    return (await engine.generate(prompt, sampling)).token_ids


def crowd(seed: int, count: int) -> list[tuple[list[int], int]]:
    """Return prompts and output lengths: some of one token, some beyond the tiny models' windows of 32 tokens."""
    rng = random.Random(seed)
    return [
        ([rng.randrange(3, 200) for _ in range(rng.choice([1, 2, 5, 17, 40, 40, 75]))], rng.choice([1, 3, 12, 40]))
        for _ in range(count)
    ]


async def arrive(engine: AsyncEngine, delay: int, prompt: list[int], sampling: SamplingParams) -> list[int]:
    """Ask after a number of turns of the event loop, so that requests join a batch that is under way."""
    for _ in range(delay):
        await asyncio.sleep(0.001)
    return await token_ids(engine, prompt, sampling)


async def leave_midway(engine: AsyncEngine, prompt: list[int], after: int) -> None:
    seen = 0
    outputs = engine.outputs(prompt, greedy(80))
    async for output in outputs:
        seen += len(output.token_ids)
        if seen >= after:
            break
    await outputs.aclose()


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
async def test_greedy_text_in_a_churning_batch_equals_the_solo_run(architecture, tiny_model, until_idle):
    requests = crowd(seed=3, count=14)
    async with AsyncEngine(tiny_model(architecture), settings=settings(max_num_batched_tokens=48)) as engine:
        assert engine.model.capabilities["serving_mode"] == MODES.get(architecture, "batched")
        solo = [await token_ids(engine, prompt, greedy(n)) for prompt, n in requests]
        crowded = await asyncio.gather(
            *(arrive(engine, 2 * i, prompt, greedy(n)) for i, (prompt, n) in enumerate(requests)),
            *(leave_midway(engine, prompt, after) for after, (prompt, _) in enumerate(requests[:6])),
        )
        assert crowded[: len(requests)] == solo
        assert [len(tokens) for tokens in solo] == [n for _, n in requests]
        await until_idle(engine)


@pytest.mark.parametrize("architecture", ["llama", "mamba2"])
def test_rows_join_a_batch_unless_their_padding_costs_more_than_the_weights(architecture, generator):
    generator = generator(architecture)
    batch, layers = Batch(generator), generator.make_cache()
    generator.forward(mx.array([[5, 6, 7]], dtype=mx.int32), layers)
    token_bytes = states.token_bytes(layers)
    assert bool(token_bytes) is (architecture == "llama")
    apart = step_cost.MIN_FORWARD_BYTES + 10**6 * token_bytes
    assert batch.added_bytes(1, 10**6, token_bytes) == apart
    short = Sequence(Submit(sequence_id=1, request_id="r", prompt=[5, 6, 7, 8], max_tokens=9), num_computed=3)
    batch.join([short], layers)
    assert batch.added_bytes(1, 3, token_bytes) == 3 * token_bytes
    together = batch.added_bytes(1, 10**6, token_bytes)
    grown = 10**6 * token_bytes // GROWTH_STEPS
    assert together == (2 * 10**6 - 3) * token_bytes + grown
    assert (together > apart) is (architecture == "llama")


async def test_rows_of_very_different_lengths_say_what_they_say_alone(tiny_model, monkeypatch):
    monkeypatch.setattr(step_cost, "MIN_FORWARD_BYTES", 0)
    prompts = [[5, 6, 7, n] for n in range(4)] + [[p % 180 + 3 for p in range(3000)]]
    async with AsyncEngine(tiny_model("llama"), settings=settings(cache="off")) as engine:
        solo = [await token_ids(engine, prompt, greedy(60)) for prompt in prompts]
        assert await asyncio.gather(*(token_ids(engine, prompt, greedy(60)) for prompt in prompts)) == solo


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "mamba2"])
async def test_a_seed_gives_the_same_text_whoever_else_is_in_the_batch(architecture, tiny_model):
    def sampled(seed: int, **more) -> SamplingParams:
        return SamplingParams(max_tokens=20, seed=seed, ignore_eos=True, **more)

    variants: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_p": 0.8},
        {"temperature": 1.3, "top_k": 20, "min_p": 0.01},
        {"temperature": 1.0, "presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.2},
        {"temperature": 0.9, "logit_bias": {65: 5.0}, "logprobs": 3},
        {"temperature": 0.0},
    ]
    prompts = [p for p, _ in crowd(seed=5, count=len(variants))]
    async with AsyncEngine(tiny_model(architecture), settings=settings()) as engine:
        solo = [
            await token_ids(engine, p, sampled(i, **v)) for i, (p, v) in enumerate(zip(prompts, variants, strict=True))
        ]
        crowded = await asyncio.gather(
            *(arrive(engine, i, p, sampled(i, **v)) for i, (p, v) in enumerate(zip(prompts, variants, strict=True))),
            *(token_ids(engine, p, SamplingParams(max_tokens=15, temperature=1.0)) for p in prompts),
        )
        assert crowded[: len(variants)] == solo
        other_seed = await token_ids(engine, prompts[0], sampled(99, temperature=1.0))
        assert other_seed != solo[0]


async def test_unseeded_runs_differ(tiny_model):
    async with AsyncEngine(tiny_model("qwen3"), settings=settings()) as engine:
        runs = [await token_ids(engine, [5, 6, 7], SamplingParams(max_tokens=12, temperature=1.0)) for _ in range(3)]
        assert len({tuple(run) for run in runs}) == 3


async def test_completions_of_one_seeded_request_differ_from_each_other_and_repeat(tiny_model):
    async def both(engine: AsyncEngine) -> list[list[int]]:
        tokens: list[list[int]] = [[], []]
        async for output in engine.outputs([5, 6, 7], SamplingParams(max_tokens=12, temperature=1.0, seed=4), n=2):
            tokens[output.choice] += output.token_ids
        return tokens

    async with AsyncEngine(tiny_model("qwen3"), settings=settings()) as engine:
        first = await both(engine)
        assert first[0] != first[1]
        assert await both(engine) == first


@pytest.mark.parametrize("budget", [4, 16, 4096])
async def test_chunked_prefill_does_not_change_the_answer(budget, tiny_model):
    prompt = [p % 180 + 3 for p in range(300)]
    async with AsyncEngine(tiny_model("gemma3"), settings=settings(max_num_batched_tokens=4096)) as engine:
        whole = await token_ids(engine, prompt, greedy(12))
    async with AsyncEngine(tiny_model("gemma3"), settings=settings(max_num_batched_tokens=budget)) as engine:
        assert await token_ids(engine, prompt, greedy(12)) == whole


def widen_heads(source: Path, out: Path) -> Path:
    """Write the tiny llama again with heads of 32, the smallest that a quantised cache can hold."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    shutil.copytree(source, out)
    config = json.loads((source / "config.json").read_text()) | {"head_dim": 32}
    (out / "config.json").write_text(json.dumps(config))
    mx.random.seed(1)
    weights = dict(tree_flatten(llama.Model(llama.ModelArgs.from_dict(config)).parameters()))
    mx.save_safetensors(str(out / "model.safetensors"), weights, metadata={"format": "mlx"})
    return out


async def test_a_quantised_cache_is_served_one_row_at_a_time_and_fairly(tiny_model, tmp_path):
    plugin = str(Path(__file__).parent / "plugins" / "quantised_cache.py")
    requests = crowd(seed=9, count=5)
    model = widen_heads(tiny_model("llama"), tmp_path / "wide")
    async with AsyncEngine(model, plugins=[plugin], settings=settings()) as engine:
        assert engine.model.capabilities["serving_mode"] == "one row at a time"
        solo = [await token_ids(engine, prompt, greedy(n)) for prompt, n in requests]
        assert await asyncio.gather(*(token_ids(engine, p, greedy(n)) for p, n in requests)) == solo

        progress = [0, 0]
        others: list[int] = []

        async def watch(number: int) -> None:
            async for output in engine.outputs([7, 8, 9], greedy(200)):
                progress[number] += len(output.token_ids)
            others.append(progress[1 - number])

        await asyncio.gather(watch(0), watch(1))
        assert others[0] >= 100, "both advance together"


async def test_a_reused_prefix_gives_the_same_answer_as_a_cold_run(tiny_model):
    for architecture in ("qwen3", "gemma3", "mamba2", "qwen3_next", "falcon_h1"):
        path = tiny_model(architecture)
        base = [p % 180 + 3 for p in range(60)]
        prompts = [base, [*base, 9, 8, 7], base[:30] + [4] * 12, base, base[:45]]
        async with AsyncEngine(path, settings=settings(cache="off")) as engine:
            cold = [await token_ids(engine, prompt, greedy(8)) for prompt in prompts]
        async with AsyncEngine(path, settings=settings(cache="lru")) as engine:
            warm = [await engine.generate(prompt, greedy(8)) for prompt in prompts]
        assert [each.token_ids for each in warm] == cold, architecture
        assert warm[3].usage.cached_tokens > 0, f"{architecture}: the same prompt again"
        assert all(each.usage.cached_tokens < len(p) for each, p in zip(warm, prompts, strict=True))


async def test_nothing_is_left_after_many_random_disconnects(tiny_model, until_idle):
    rng = random.Random(1)
    async with AsyncEngine(tiny_model("qwen3"), settings=settings(max_num_seqs=8, cache="lru")) as engine:

        async def one(number: int) -> None:
            prompt = [rng.randrange(3, 200) for _ in range(rng.choice([1, 20, 90]))]
            if rng.random() < 0.5:
                await leave_midway(engine, prompt, rng.randrange(0, 12))
            else:
                assert len(await token_ids(engine, prompt, greedy(10))) == 10

        await asyncio.gather(*(one(number) for number in range(200)))
        await until_idle(engine)
        assert len(await token_ids(engine, [5, 6], greedy(5))) == 5
