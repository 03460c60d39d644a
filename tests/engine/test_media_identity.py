"""Prompts of the same token ids that show different pictures share nothing after the first of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import FIRST_MEDIA_ID, EngineSettings, SamplingParams, Settings, media_ids

pytestmark = pytest.mark.anyio
PICTURES = ["vllm_mlx_core.testing.scripted", str(Path(__file__).parent / "plugins" / "pictures.py")]
BEFORE, PICTURE = "x" * 40, "#" * 40


@pytest.fixture(params=["radix", "lru", "paged:block_size=8"])
async def engine(request) -> AsyncIterator[AsyncEngine]:
    settings = Settings(timeout_s=240, engine=EngineSettings(cache=request.param))
    async with AsyncEngine("scripted", plugins=PICTURES, settings=settings) as engine:
        yield engine


async def cached(engine: AsyncEngine, prompt: str) -> int:
    sampling = SamplingParams(max_tokens=2, temperature=0)
    return max([output.cached_tokens async for output in engine.outputs(prompt, sampling)])


async def test_another_picture_is_read_again(engine):
    start = 1 + len(BEFORE)  # the scripted prompt begins with a mark
    prompt = BEFORE + PICTURE + "y" * 40
    assert await cached(engine, f"{prompt}|cat") == 0
    assert await cached(engine, f"{prompt}|cat") > start + len(PICTURE)
    assert await cached(engine, f"{prompt}|dog") <= start
    assert await cached(engine, f"{prompt}|dog") > start + len(PICTURE)
    assert await cached(engine, f"{prompt}|cat") > start + len(PICTURE)


async def test_pictures_that_arrive_together_are_told_apart(engine):
    prompts = [f"{BEFORE + PICTURE}{n}|{name}" for n, name in enumerate(["cat", "dog", "cat", "dog"])]
    first, second, *others = await asyncio.gather(*(cached(engine, prompt) for prompt in prompts))
    assert first == 0
    assert second <= 1 + len(BEFORE)
    assert others == [1 + len(BEFORE + PICTURE)] * 2


def test_media_ids_are_those_of_no_token_and_depend_on_every_byte():
    ids = media_ids(b"cat", 300)
    assert len(ids) == len(set(ids)) == 300
    assert all(FIRST_MEDIA_ID <= each < 2**32 for each in ids)
    assert ids == media_ids(b"cat", 300)
    assert not set(ids) & set(media_ids(b"cau", 300))
    assert media_ids(b"cat", 3) == ids[:3]
