"""Prompts that begin alike and arrive together: the beginning is read once, and nobody's answer changes."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import EngineSettings, GenerateRequest, SamplingParams, Settings

pytestmark = pytest.mark.anyio
NUMBERS = itertools.count()
COMMON = [p * p % 180 + 3 for p in range(150)]
ENDS = [[7 + n, 8, 9, 10 + n % 3] for n in range(6)]
ARCHITECTURES = ["llama", "gemma3", "mamba2", "qwen3_next", "nemotron_h"]


def settings(**engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(**{"max_num_batched_tokens": 64, **engine}))


def engine_of(path, **engine) -> AsyncEngine:
    return AsyncEngine(path, plugins=["step_counter"], settings=settings(**engine))


@dataclass
class Answer:
    token_ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0


async def ask_for(engine: AsyncEngine, prompt: list[int], *, n: int, **more) -> list[Answer]:
    """Return ``n`` answers to one prompt, greedy if nothing else is asked for."""
    sampling = {"max_tokens": 8, "temperature": 0, "ignore_eos": True} | more.pop("sampling", {})
    request = GenerateRequest(
        request_id=f"r{next(NUMBERS)}",
        model=engine.model.id,
        prompt=prompt,
        n=n,
        sampling=SamplingParams(**sampling),
        **more,
    )
    answers = [Answer() for _ in range(n)]
    async for step in await engine.loaded.client.generate(request):
        for output in step:
            answer = answers[output.choice]
            answer.token_ids += output.token_ids
            answer.cached_tokens = max(answer.cached_tokens, output.cached_tokens)
    return answers


async def ask(engine: AsyncEngine, prompt: list[int], **more) -> Answer:
    (answer,) = await ask_for(engine, prompt, n=1, **more)
    return answer


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0)


async def num_running(engine: AsyncEngine) -> int:
    return (await engine.loaded.client.stats()).running


@pytest.mark.parametrize("cache", ["radix", "lru"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_a_common_beginning_is_read_once(architecture, cache, tiny_model, step_counter):
    prompts = [COMMON + end for end in ENDS]
    async with engine_of(tiny_model(architecture), cache="off") as engine:
        alone = [(await ask(engine, prompt)).token_ids for prompt in prompts]
    step_counter.clear()
    async with engine_of(tiny_model(architecture), cache=cache) as engine:
        answers = await asyncio.gather(*(ask(engine, prompt) for prompt in prompts))
    assert [answer.token_ids for answer in answers] == alone
    assert sum(step_counter) == len(COMMON) + 3 * len(ENDS)
    assert [answer.cached_tokens for answer in answers] == [0] + [len(COMMON)] * (len(ENDS) - 1)


async def test_without_a_cache_requests_share_nothing(tiny_model, step_counter):
    prompts = [COMMON + end for end in ENDS]
    async with engine_of(tiny_model("llama"), cache="off") as engine:
        step_counter.clear()
        answers = await asyncio.gather(*(ask(engine, prompt) for prompt in prompts))
    assert sum(step_counter) == sum(len(prompt) - 1 for prompt in prompts)
    assert [answer.cached_tokens for answer in answers] == [0] * len(ENDS)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "llama4"])
async def test_the_completions_of_one_prompt_fork_when_it_is_read(architecture, tiny_model, step_counter):
    sampled = {"temperature": 1.0, "seed": 4, "logprobs": 0}
    async with engine_of(tiny_model(architecture), cache="off") as engine:
        alone = [await ask(engine, COMMON, sampling=sampled)]
        step_counter.clear()
        forked = await ask_for(engine, COMMON, n=4, sampling=sampled)
        assert sum(step_counter) == len(COMMON) - 1
        again = await ask_for(engine, COMMON, n=4, sampling=sampled)
    assert {each.cached_tokens for each in forked} == {0}, "the request has read its prompt"
    assert forked[0].token_ids == alone[0].token_ids
    assert [each.token_ids for each in forked] == [each.token_ids for each in again]
    assert len({tuple(each.token_ids) for each in forked}) == 4


async def test_who_arrives_while_another_answers_takes_what_that_has_read(tiny_model, step_counter):
    async def is_read() -> bool:
        return bool(sum(step_counter) >= len(COMMON) + 3)

    async with engine_of(tiny_model("llama"), cache="off") as engine:
        alone = (await ask(engine, COMMON + ENDS[1])).token_ids
    async with engine_of(tiny_model("llama"), cache="lru") as engine:
        step_counter.clear()
        long = asyncio.ensure_future(ask(engine, COMMON + ENDS[0], sampling={"max_tokens": 400}))
        await until(is_read)
        step_counter.clear()
        answer = await ask(engine, COMMON + ENDS[1])
        assert not long.done(), "it ended too early for the test"
        assert answer.token_ids == alone
        assert answer.cached_tokens == len(COMMON)
        assert sum(step_counter) == 3
        await long


@pytest.mark.parametrize("architecture", ["llama", "qwen3_next"])
async def test_what_the_reader_has_read_is_not_lost_when_it_leaves(architecture, tiny_model, step_counter):
    common = COMMON * 8

    async def is_halfway() -> bool:
        return bool(len(common) // 2 < sum(step_counter))

    async with engine_of(tiny_model(architecture), cache="lru") as engine:
        leaving = asyncio.ensure_future(ask(engine, common + ENDS[0]))
        staying = [asyncio.ensure_future(ask(engine, common + end)) for end in ENDS[1:]]
        await until(is_halfway)
        leaving.cancel()
        await asyncio.gather(*staying)
    # What the one that left reads of its own end counts if it was done before it was heard to leave.
    assert sum(step_counter) <= len(common) + 3 * len(ENDS)


async def test_the_completions_of_one_prompt_look_it_up_once(tiny_model):
    async with engine_of(tiny_model("llama"), cache="radix") as engine:
        await ask(engine, COMMON)
        before = (await engine.loaded.client.stats()).cache
        answers = await ask_for(engine, [*COMMON, 5], n=3)
        after = (await engine.loaded.client.stats()).cache
        assert before is not None
        assert after is not None
        assert {answer.cached_tokens for answer in answers} == {len(COMMON)}
        assert after.hits - before.hits == 1
        assert after.saved_tokens - before.saved_tokens == len(COMMON)


async def test_what_is_too_little_to_be_reused_is_a_miss_that_says_so(tiny_model):
    async with engine_of(tiny_model("llama"), cache="radix") as engine:
        await ask(engine, COMMON)
        answer = await ask(engine, COMMON[:10] + [7] * 30)
        cache = (await engine.loaded.client.stats()).cache
        assert cache is not None
        assert answer.cached_tokens == cache.hits == cache.saved_tokens == 0
        assert cache.last_miss is not None
        assert cache.last_miss.position == 10
        assert "fewer than 16" in cache.last_miss.reason


@pytest.mark.parametrize("architecture", ["llama", "qwen3_next"])
async def test_if_the_reader_leaves_another_one_reads(architecture, tiny_model, until_idle, step_counter):
    prompts = [COMMON * 4 + end for end in ENDS]
    async with engine_of(tiny_model(architecture), cache="lru") as engine:
        alone = [(await ask(engine, prompt)).token_ids for prompt in prompts]
        leaving = [asyncio.ensure_future(ask(engine, prompt)) for prompt in prompts[:2]]
        staying = [asyncio.ensure_future(ask(engine, prompt)) for prompt in prompts[2:]]

        async def all_run() -> bool:
            return await num_running(engine) == len(prompts)

        await until(all_run)
        for task in leaving:  # one after the other: the second has become the reader
            task.cancel()
            await asyncio.sleep(0.01)
        assert [(await task).token_ids for task in staying] == alone[2:]
        await until_idle(engine)


async def test_salts_keep_beginnings_apart(tiny_model, step_counter):
    async with engine_of(tiny_model("llama"), cache="lru") as engine:
        answers = await asyncio.gather(
            *(ask(engine, COMMON + end, cache_salt=f"s{n % 2}") for n, end in enumerate(ENDS))
        )
    assert [answer.cached_tokens for answer in answers] == [0, 0] + [len(COMMON)] * (len(ENDS) - 2)


async def test_nobody_waits_for_who_is_less_urgent(tiny_model, step_counter):
    prompts = [COMMON * 8 + end for end in ENDS[:2]]
    async with engine_of(tiny_model("llama"), cache="lru") as engine:
        slow = asyncio.ensure_future(ask(engine, prompts[0], priority=9))
        await until(lambda: num_running(engine))
        urgent = await ask(engine, prompts[1])
        assert urgent.cached_tokens < len(COMMON) * 8, "it reads the rest itself"
        await slow
