"""Work that nobody waits for: it takes no place from people, and is answered as if it had been alone."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import IDLE_PRIORITY, Completion, EngineSettings, GenerateRequest, SamplingParams, Settings

pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()
LONG = [p % 180 + 3 for p in range(1500)]


def settings(max_num_seqs: int) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(max_num_seqs=max_num_seqs))


async def ask(
    engine: AsyncEngine, prompt: list[int], *, priority: int = 0, scored: bool = False, expected: bool = False
) -> Completion:
    """Return a greedy answer and, if the prompt is ``scored``, its log-probabilities."""
    request = GenerateRequest(
        request_id=f"r{next(NUMBERS)}",
        model=engine.model.id,
        prompt=prompt,
        sampling=SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, prompt_logprobs=0 if scored else None),
        priority=priority,
        expected=expected,
    )
    completion = Completion()
    async for step in await engine.loaded.client.generate(request):
        for output in step:
            completion.add(output)
    return completion


def scores(completion: Completion) -> list[float]:
    return [each.logprob for each in completion.prompt_logprobs if each.logprob is not None]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba2", "qwen3_next"])
async def test_an_idle_prompt_leaves_its_place_and_is_answered_as_if_alone(architecture, scored, tiny_model):
    model = tiny_model(architecture)
    people = [[7, 8, number] for number in range(3)]
    async with AsyncEngine(model, settings=settings(1)) as engine:
        alone = [await ask(engine, LONG, scored=scored)]
        alone += [await ask(engine, each) for each in people]
    ended: list[str] = []

    async def noted(name: str, *asking, **how) -> Completion:
        answer = await ask(*asking, **how)
        ended.append(name)
        return answer

    async with AsyncEngine(model, settings=settings(1)) as engine:
        async with asyncio.TaskGroup() as tasks:
            idle = tasks.create_task(noted("idle", engine, LONG, priority=IDLE_PRIORITY, scored=scored))
            while not (await engine.loaded.client.stats()).running:
                await asyncio.sleep(0)
            answers = [await noted("person", engine, each) for each in people]
        assert [each.token_ids for each in (idle.result(), *answers)] == [each.token_ids for each in alone]
        assert scores(idle.result()) == pytest.approx(scores(alone[0]), abs=1e-3)
        assert len(scores(alone[0])) == (len(LONG) - 1 if scored else 0)
    assert ended == ["person"] * 3 + ["idle"]


@pytest.mark.parametrize("expected", [False, True])
async def test_idle_work_drives_out_what_is_idle_and_not_what_is_expected(expected, tiny_model):
    engine = EngineSettings(self_test=False, enforce_eager=True, cache="lru:max_entries=2")
    async with AsyncEngine(tiny_model("llama"), settings=Settings(engine=engine)) as model:
        await ask(model, LONG[:100], priority=IDLE_PRIORITY, expected=expected)
        for first in (5, 6, 7):
            await ask(model, [first, *LONG[:100]], priority=IDLE_PRIORITY)
        assert ((await ask(model, [*LONG[:100], 9])).usage.cached_tokens == 100) == expected
