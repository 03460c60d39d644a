"""Staying within the memory that may be used: who waits, who goes, and who is refused."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    Completion,
    EngineSettings,
    GenerateRequest,
    InsufficientMemory,
    ModelError,
    SamplingParams,
    Settings,
)
from vllm_mlx_core.engine import device, state_cost, states
from vllm_mlx_core.engine.rows import STEP

pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()
CHUNK = 32
SCRATCH = 600_000
"""What a step may hold beside the states while it runs, in bytes."""
SLACK = 30_000
"""What may become free or be taken elsewhere in this process while a test runs, in bytes."""


def settings(cache: str = "off", **engine) -> Settings:
    chosen = EngineSettings(memory_share=1.0, max_num_batched_tokens=CHUNK, cache=cache, enforce_eager=True, **engine)
    return Settings(timeout_s=240, engine=chosen)


@pytest.fixture
def memory_for(generator, monkeypatch) -> Callable[..., int]:
    """Return a function that lets a model have memory for so many rows of so many tokens, and returns the bytes."""

    monkeypatch.setattr(device, "held_by", lambda call, argument: call(argument) or 0)  # the budgets are states alone

    def limit(architecture: str, *, rows: int, tokens: int) -> int:
        loaded = generator(architecture)
        cost, weights = state_cost.learn(loaded), int(loaded.nbytes)
        del loaded
        gc.collect()
        budget = int(mx.get_active_memory()) + weights + rows * cost.state(tokens) + SLACK
        monkeypatch.setattr(device, "capacity", lambda: budget)
        return budget

    return limit


async def ask(engine: AsyncEngine, prompt: list[int], max_tokens: int, priority: int = 0) -> Completion:
    completion = Completion()
    request = GenerateRequest(
        request_id=f"r{next(NUMBERS)}",
        model=engine.model.id,
        prompt=prompt,
        sampling=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
        priority=priority,
    )
    async for step in await engine.loaded.client.generate(request):
        for output in step:
            completion.add(output)
    return completion


class Watch:
    """The most that ran together and the most that MLX held between two steps, as long as it is watched."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.running = self.active = 0
        self._engine = engine
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            stats = await self._engine.loaded.client.stats()
            self.running = max(self.running, stats.running)
            self.active = max(self.active, stats.active_memory_bytes)
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._task.cancel()


def prompts(count: int, length: int) -> list[list[int]]:
    return [[(7 * i + 11 * n) % 180 + 3 for i in range(length)] for n in range(count)]


async def answers(engine: AsyncEngine, asked: list[list[int]], max_tokens: int) -> tuple[list[list[int]], Watch]:
    watch = Watch(engine)
    completions = await asyncio.gather(*(ask(engine, prompt, max_tokens) for prompt in asked))
    watch.stop()
    return [list(each.token_ids) for each in completions], watch


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
async def test_as_many_run_as_there_is_memory_for_and_the_others_wait(architecture, tiny_model, memory_for):
    asked = prompts(8, 300)
    async with AsyncEngine(tiny_model(architecture), settings=settings()) as engine:
        expected, watch = await answers(engine, asked, 20)
        assert watch.running == 8
    budget = memory_for(architecture, rows=3, tokens=320)
    async with AsyncEngine(tiny_model(architecture), settings=settings()) as engine:
        given, watch = await answers(engine, asked, 20)
    assert given == expected
    assert 3 <= watch.running <= 5
    assert watch.active <= budget + SCRATCH


async def test_what_has_outgrown_the_memory_makes_room_for_one_another(tiny_model, memory_for):
    asked = prompts(4, 60)
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        expected, watch = await answers(engine, asked, 600)
    budget = memory_for("llama", rows=3, tokens=512)
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        given, watch = await answers(engine, asked, 600)
    assert watch.running >= 3, "they did begin together"
    assert given == expected
    assert watch.active <= budget + SCRATCH


@pytest.mark.parametrize("cache", ["lru", "radix"])
async def test_what_is_cached_makes_room_first(cache, tiny_model, memory_for):
    memory_for("llama", rows=1, tokens=1000)
    async with AsyncEngine(tiny_model("llama"), settings=settings(cache)) as engine:
        for prompt in prompts(12, 130):
            await ask(engine, prompt, 4)
        before = (await engine.loaded.client.stats()).cache
        (long,) = prompts(1, 900)
        answer = await ask(engine, long, 4)
        after = (await engine.loaded.client.stats()).cache
    assert len(answer.token_ids) == 4
    assert before is not None
    assert after is not None
    assert after.evictions > before.evictions


async def test_who_can_never_fit_is_refused_at_once_and_others_are_served(tiny_model, memory_for):
    memory_for("llama", rows=1, tokens=512)
    (short,), (long,) = prompts(1, 20), prompts(1, 2000)
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        running = asyncio.ensure_future(ask(engine, short, 200))
        with pytest.raises(InsufficientMemory, match="2256") as refused:
            await ask(engine, long, 4000)
        assert not running.done()
        assert (refused.value.status, refused.value.code) == (503, "insufficient_memory")
        assert refused.value.retry_after_s is None
        assert len((await running).token_ids) == 200


async def test_an_answer_that_outgrows_the_memory_alone_ends_with_an_error(tiny_model, memory_for, until_idle):
    memory_for("llama", rows=1, tokens=700)
    (short,) = prompts(1, 20)
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        alive = asyncio.ensure_future(ask(engine, short, 3000))
        with pytest.raises(InsufficientMemory, match="longer"):
            await alive
        await until_idle(engine)
        assert len((await ask(engine, short, 50)).token_ids) == 50


async def test_a_default_output_limit_of_the_whole_context_does_not_block(tiny_model, memory_for):
    memory_for("llama", rows=3, tokens=512)
    asked = prompts(3, 20)
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        watch = Watch(engine)
        await asyncio.gather(*(asyncio.wait_for(_some(engine, prompt), 60) for prompt in asked))
        watch.stop()
    assert watch.running == 3


async def _some(engine: AsyncEngine, prompt: list[int]) -> None:
    """Read the beginning of an answer that may be as long as the context."""
    request = GenerateRequest(
        request_id=f"r{next(NUMBERS)}",
        model=engine.model.id,
        prompt=prompt,
        sampling=SamplingParams(temperature=0, ignore_eos=True),
    )
    stream = await engine.loaded.client.generate(request)
    seen = 0
    async for step in stream:
        seen += sum(len(output.token_ids) for output in step)
        if seen > 40:
            break
    await stream.aclose()


def test_what_reading_takes_for_a_moment_is_learned(generator):
    cost = state_cost.learn(generator("llama"))
    assert cost.per_token == 2 * 2 * 2 * 16 * 4
    assert cost.scratch(CHUNK, 100) > 0
    assert cost.state(300) == (300 + STEP) * cost.per_token
    windowed = state_cost.learn(generator("gemma3"))  # one layer of two keeps the latest 32 tokens
    assert windowed.state(10_000) - windowed.state(5_000) == (cost.state(10_000) - cost.state(5_000)) // 2
    recurrent = state_cost.learn(generator("mamba2"))
    assert 0 < recurrent.state(10) == recurrent.state(10_000)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen3_next", "mamba2", "llama_swa"])
def test_reading_takes_no_more_than_was_learned_and_the_same_is_learned_again(architecture, generator):
    model = generator(architecture)
    cost = state_cost.learn(model)
    assert [state_cost.learn(model) for _ in range(3)] == [cost] * 3
    for chunk in (64, 512):
        layers = model.make_cache()
        for start in range(0, 2000, chunk):
            length = min(chunk, 2000 - start)
            mx.synchronize()
            before = mx.get_active_memory()
            mx.reset_peak_memory()
            model.forward(mx.array([[i % 150 for i in range(length)]], dtype=mx.int32), layers)
            mx.eval(states.arrays(layers))
            grown = cost.state(start + length)
            assert mx.get_peak_memory() - before <= grown + cost.scratch(length, start + length)


async def test_a_prompt_is_read_in_smaller_chunks_where_memory_is_short(tiny_model, generator, monkeypatch, caplog):
    model = generator("llama")
    cost, weights = state_cost.learn(model), int(model.nbytes)
    del model
    gc.collect()
    (prompt,) = prompts(1, 1500)
    needed = cost.state(1600) + cost.scratch(100, 1600)  # the whole prompt at once takes fifteen times as much
    mx.clear_cache()
    held = int(mx.get_active_memory())
    chosen = Settings(timeout_s=240, engine=EngineSettings(memory_share=1.0, cache="off", enforce_eager=True))
    async with AsyncEngine(tiny_model("llama"), settings=chosen) as engine:
        expected = (await ask(engine, prompt, 4)).token_ids
    monkeypatch.setattr(device, "capacity", lambda: held + weights + needed + SLACK)
    async with AsyncEngine(tiny_model("llama"), settings=chosen) as engine:
        mx.reset_peak_memory()
        assert (await ask(engine, prompt, 4)).token_ids == expected
        assert mx.get_peak_memory() <= held + weights + needed + SLACK
    assert "fewer than the 4096 of the context" in caplog.text


async def test_weights_that_leave_no_room_end_the_start(tiny_model, monkeypatch):
    monkeypatch.setattr(device, "capacity", lambda: 1000)
    with pytest.raises(ModelError, match=r"take \d+ KB of the 1 KB .*--gpu-memory-utilization"):
        await AsyncEngine(tiny_model("llama"), settings=settings()).start()


def test_the_machine_has_what_its_control_groups_leave(tmp_path: Path):
    groups, membership = tmp_path / "groups", tmp_path / "membership"
    (groups / "a" / "b").mkdir(parents=True)
    (groups / "memory" / "c").mkdir(parents=True)
    membership.write_text("0::/a/b\n3:memory:/c\n4:cpu:/d\n")
    assert list(device.control_group_limits(groups, membership)) == []
    (groups / "a" / "b" / "memory.max").write_text("max\n")
    (groups / "a" / "memory.max").write_text("7000000\n")
    (groups / "memory" / "c" / "memory.limit_in_bytes").write_text("9000000\n")
    assert list(device.control_group_limits(groups, membership)) == [7000000, 9000000]
    membership.write_text("0::/elsewhere\n")  # as in a container that sees only its own group
    (groups / "memory.max").write_text("5000000\n")
    assert list(device.control_group_limits(groups, membership)) == [5000000]
    assert list(device.control_group_limits(groups, tmp_path / "missing")) == []
    assert 0 < device.machine_memory() <= device.capacity() or device.has_metal()
