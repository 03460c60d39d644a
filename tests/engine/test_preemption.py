"""Giving up a place for somebody more urgent: what a preempted request says is what it would have said."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import Completion, EngineSettings, GenerateRequest, SamplingParams, Settings

pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()
PROMPT = [p % 180 + 3 for p in range(50)]
URGENT = [[7, 8, number] for number in range(3)]
GREEDY = SamplingParams(temperature=0)
VARIANTS = [
    GREEDY,
    SamplingParams(temperature=1.0, seed=1, logprobs=3),
    SamplingParams(temperature=0.8, top_p=0.9, seed=2, prompt_logprobs=0),
    SamplingParams(temperature=1.0, seed=3, presence_penalty=1, frequency_penalty=0.5, repetition_penalty=1.2),
]


def settings(max_num_seqs: int, **engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(max_num_seqs=max_num_seqs, **engine))


class Asking:
    """A request under way: ``completion`` grows as it is answered."""

    def __init__(self, engine: AsyncEngine, prompt: list[int], sampling: SamplingParams, priority: int = 0) -> None:
        self.completion = Completion()
        self._task = asyncio.ensure_future(self._run(engine, prompt, sampling, priority))

    async def _run(self, engine: AsyncEngine, prompt: list[int], sampling: SamplingParams, priority: int) -> None:
        request = GenerateRequest(
            request_id=f"r{next(NUMBERS)}",
            model=engine.model.id,
            prompt=prompt,
            sampling=sampling,
            priority=priority,
        )
        async for step in await engine.loaded.client.generate(request):
            for output in step:
                self.completion.add(output)

    async def until(self, num_tokens: int) -> None:
        """Wait until so many tokens are read."""
        while len(self.completion.token_ids) < num_tokens:
            assert not self._task.done(), "it ended too early for the test"
            await asyncio.sleep(0)

    async def answer(self) -> Completion:
        await self._task
        return self.completion

    @property
    def has_ended(self) -> bool:
        return self._task.done()


def sampled(variant: SamplingParams, max_tokens: int) -> SamplingParams:
    return msgspec.structs.replace(variant, max_tokens=max_tokens, ignore_eos=True)


def assert_same(answer: Completion, expected: Completion) -> None:
    assert answer.token_ids == expected.token_ids
    assert answer.finish_reason == expected.finish_reason
    told = [each.chosen.logprob for each in expected.logprobs]
    assert [each.chosen.logprob for each in answer.logprobs] == pytest.approx(told, abs=1e-3)
    assert [each.logprob for each in answer.prompt_logprobs[1:]] == pytest.approx(
        [each.logprob for each in expected.prompt_logprobs[1:]], abs=1e-3
    )


@pytest.mark.parametrize("cache", ["lru", "off"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba2", "qwen3_next", "llama4"])
async def test_who_is_preempted_says_what_it_would_have_said(architecture, cache, tiny_model):
    places = len(VARIANTS)
    async with AsyncEngine(tiny_model(architecture), settings=settings(places, cache=cache)) as engine:
        alone = [await Asking(engine, [*PROMPT, n], sampled(v, 60)).answer() for n, v in enumerate(VARIANTS)]
        urgent_alone = [await Asking(engine, each, sampled(GREEDY, 5)).answer() for each in URGENT]
    async with AsyncEngine(tiny_model(architecture), settings=settings(places, cache=cache)) as engine:
        asked = [Asking(engine, [*PROMPT, n], sampled(v, 60), priority=5) for n, v in enumerate(VARIANTS)]
        for each in asked:
            await each.until(3)
        answers = []
        for number in range(2):  # each is preempted more than once
            urgent = [Asking(engine, each, sampled(GREEDY, 5)) for each in URGENT]
            answers = [await each.answer() for each in urgent]
            assert not any(each.has_ended for each in asked), "who is urgent comes first"
            assert [each.token_ids for each in answers] == [each.token_ids for each in urgent_alone], number
        for each, expected in zip(asked, alone, strict=True):
            assert_same(await each.answer(), expected)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba2", "qwen3_next", "llama4"])
async def test_who_was_preempted_reads_nothing_again_that_the_cache_has_kept(architecture, tiny_model, step_counter):
    engine = AsyncEngine(tiny_model(architecture), plugins=["step_counter"], settings=settings(1, cache="radix"))
    async with engine:
        asked = Asking(engine, PROMPT, sampled(GREEDY, 60), priority=5)
        await asked.until(3)
        step_counter.clear()
        urgent = await Asking(engine, URGENT[0], sampled(GREEDY, 5)).answer()
        assert len(urgent.token_ids) == 5
        assert not asked.has_ended
        assert len((await asked.answer()).token_ids) == 60
    assert sum(step_counter) == len(URGENT[0]) - 1
