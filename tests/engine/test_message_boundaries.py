"""States that cannot go back are kept where messages end, so that a conversation that parts there resumes there."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    Chat,
    Completion,
    EngineSettings,
    GenerateRequest,
    RenderedPrompt,
    SamplingParams,
    Settings,
    common_prefix,
    pack_tokens,
)
from vllm_mlx_core.engine.reading_stops import MIN_GAP, NUM_FIRST, NUM_LATEST, stops_at

Message = dict[str, Any]

RECURRENT = ["mamba2", "qwen3_next", "granite_hybrid", "nemotron_h"]
WINDOWED = ["gemma3", "gpt_oss", "llama4"]
GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
SYSTEM: Message = {"role": "system", "content": "You answer in few words and never explain them. " * 4}
NUMBERS = itertools.count()


def engine(model: Path, cache: str, **more: Any) -> AsyncEngine:
    chosen: dict[str, Any] = {"max_num_batched_tokens": 2048, **more}
    return AsyncEngine(model, settings=Settings(timeout_s=240, engine=EngineSettings(cache=cache, **chosen)))


def turns(*names: str) -> list[Message]:
    """Return messages of two hundred tokens, the user's and the assistant's in turn, told apart by their names."""
    said = [f"{name} says: {'more of the same ' * 11}" for name in names]
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)]


def window(model: Path, out: Path, tokens: int) -> Path:
    """Write a model again with sliding windows of so many tokens."""
    shutil.copytree(model, out)
    config = json.loads((model / "config.json").read_text()) | {"sliding_window": tokens}
    (out / "config.json").write_text(json.dumps(config))
    return out


def request(of: AsyncEngine, messages: list[Message], **template_kwargs: Any) -> GenerateRequest:
    chat = Chat(messages=messages, template_kwargs=template_kwargs)
    return GenerateRequest(request_id=f"r{next(NUMBERS)}", model=of.model.id, prompt=chat, sampling=GREEDY)


async def ask(of: AsyncEngine, messages: list[Message], **template_kwargs: Any) -> Completion:
    completion = Completion()
    async for step in await of.loaded.client.generate(request(of, messages, **template_kwargs)):
        for output in step:
            completion.add(output)
    return completion


async def render(of: AsyncEngine, messages: list[Message], **template_kwargs: Any) -> RenderedPrompt:
    return await of.loaded.client.render(request(of, messages, **template_kwargs))


async def steps(of: AsyncEngine, messages: list[Message]) -> int:
    """Return how many steps an answer takes."""
    before = (await of.loaded.client.stats()).steps
    await ask(of, messages)
    return (await of.loaded.client.stats()).steps - before


def last_shared_boundary(first: RenderedPrompt, second: RenderedPrompt) -> int:
    common = common_prefix(pack_tokens(first.token_ids), pack_tokens(second.token_ids))
    return max(boundary for boundary in first.boundaries if boundary <= common)


@pytest.mark.anyio
@pytest.mark.parametrize("cache", ["lru", "radix", "paged"])
@pytest.mark.parametrize("architecture", RECURRENT + WINDOWED)
async def test_a_conversation_resumes_where_it_parts_from_another(architecture, cache, tiny_model):
    first = [SYSTEM, *turns("ann", "bob", "cleo")]
    others = {
        "the last message is edited": [*first[:-1], *turns("cleo again")],
        "an agent drops its latest turns": [*first[:2], *turns("ann", "dan", "eve")[1:]],
        "another conversation under the same system prompt": [SYSTEM, *turns("zoe")],
    }
    async with engine(tiny_model(architecture), "off") as cold:
        expected = {name: (await ask(cold, messages)).token_ids for name, messages in others.items()}
    async with engine(tiny_model(architecture), cache) as warm:
        assert (await ask(warm, first)).usage.cached_tokens == 0
        rendered = await render(warm, first)
        for name, messages in others.items():
            answer = await ask(warm, messages)
            boundary = last_shared_boundary(rendered, await render(warm, messages))
            assert boundary > 150, name
            assert answer.usage.cached_tokens == boundary, name
            assert answer.token_ids == expected[name], name


@pytest.mark.anyio
@pytest.mark.parametrize("architecture", ["qwen3_next", "gemma3"])
async def test_an_answer_that_is_written_differently_afterwards_costs_only_itself(architecture, tiny_model):
    """The prompt of a turn ends with what opens the answer; templates may open earlier answers in another way."""
    first = [SYSTEM, *turns("ann")]
    second = [*first, *turns("", "bob", "cleo")[1:]]
    async with engine(tiny_model(architecture), "off") as cold:
        expected = await ask(cold, second, enable_thinking=False)
    async with engine(tiny_model(architecture), "radix") as warm:
        await ask(warm, first, enable_thinking=False)
        answer = await ask(warm, second, enable_thinking=False)
        rendered = await render(warm, first, enable_thinking=False)
        assert answer.usage.cached_tokens == rendered.boundaries[-1] < len(rendered.token_ids) - 5
        assert answer.token_ids == expected.token_ids


@pytest.mark.anyio
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
async def test_models_whose_states_go_back_read_their_prompts_in_one_go(architecture, tiny_model):
    messages = [SYSTEM, *turns("ann", "bob", "cleo")]
    async with engine(tiny_model(architecture), "off") as cold, engine(tiny_model(architecture), "lru") as warm:
        assert await steps(warm, messages) == await steps(cold, messages)
        stats = (await warm.loaded.client.stats()).cache
        assert stats is not None
        assert stats.entries == 1


@pytest.mark.anyio
async def test_only_who_has_a_cache_pauses_at_the_end_of_each_message(tiny_model):
    messages = [SYSTEM, *turns("ann", "bob", "cleo")]
    async with engine(tiny_model("mamba2"), "off") as cold, engine(tiny_model("mamba2"), "lru") as warm:
        assert await steps(warm, messages) == await steps(cold, messages) + 4
        stats = (await warm.loaded.client.stats()).cache
        assert stats is not None
        assert stats.entries == 5, "one for each message, and the answer"
        assert await steps(warm, messages) == await steps(cold, messages), "what is read already is not read again"


@pytest.mark.anyio
async def test_a_window_that_the_prompt_does_not_fill_needs_no_pause(tiny_model, tmp_path):
    messages, edited = [SYSTEM, *turns("ann", "bob")], [SYSTEM, *turns("ann", "bobby")]
    model = window(tiny_model("gemma3"), tmp_path / "wide", 1024)
    async with engine(model, "off") as cold, engine(model, "radix") as warm:
        assert await steps(warm, messages) == await steps(cold, messages)
        answer = await ask(warm, edited)
        prompts = [await render(warm, messages), await render(warm, edited)]
        shared = common_prefix(*(pack_tokens(prompt.token_ids) for prompt in prompts))
        assert answer.usage.cached_tokens == shared, "its state can go back to any token"
        assert answer.token_ids == (await ask(cold, edited)).token_ids


@pytest.mark.anyio
@pytest.mark.parametrize("budget", [48, 2048])
@pytest.mark.parametrize("architecture", ["qwen3_next", "nemotron_h", "gemma3"])
async def test_a_crowd_that_pauses_is_answered_as_each_alone(architecture, budget, tiny_model, until_idle):
    crowd = [[SYSTEM, *turns(*names)] for names in (["a"], ["b", "c", "d"], ["a", "e", "f"], ["g"])] + [turns("x")]
    crowd += [[{"role": "user", "content": f"Hi {number}"}] for number in range(3)]
    async with engine(tiny_model(architecture), "off") as cold:
        expected = [(await ask(cold, messages)).token_ids for messages in crowd]
    async with engine(tiny_model(architecture), "radix", max_num_batched_tokens=budget, max_num_seqs=4) as warm:
        for _ in range(2):
            answers = await asyncio.gather(*(ask(warm, messages) for messages in crowd))
            assert [answer.token_ids for answer in answers] == expected
        assert all(answer.usage.cached_tokens > 150 for answer in answers[:4])
        await until_idle(warm)


RISING = st.lists(st.integers(1, 3000), max_size=60, unique=True).map(sorted)


@given(RISING, st.integers(0, 2000), st.integers(0, 3000))
def test_stops_are_few_and_apart_and_lose_little(boundaries, start, end):
    stops = sorted(stops_at(boundaries, start=start, end=end))
    assert set(stops) <= set(boundaries)
    assert all(start + MIN_GAP <= stop < end for stop in stops)
    assert all(after - before >= MIN_GAP for before, after in itertools.pairwise(stops))
    assert len(stops) <= NUM_FIRST + NUM_LATEST
    useful = [boundary for boundary in boundaries if start + MIN_GAP <= boundary < end]
    assert stops[:1] == useful[:1], "the system prompt"
    covered = useful if len(stops) < NUM_FIRST + NUM_LATEST else [b for b in useful if b >= stops[NUM_FIRST]]
    assert all(min(abs(boundary - stop) for stop in stops) < MIN_GAP for boundary in covered)
