"""What an engine does when there is nothing to do."""

from __future__ import annotations

import asyncio

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import SamplingParams
from vllm_mlx_core.engine import device, tidying
from vllm_mlx_core.engine.tidying import AFTER_S, Tidying


@pytest.fixture
def freed(monkeypatch) -> list[int]:
    """Memory is not given back, but noted here."""
    calls: list[int] = []
    monkeypatch.setattr(device, "free_heap", lambda: calls.append(1))
    return calls


def test_memory_is_given_back_once_when_nobody_has_wanted_anything_for_a_while(freed):
    now = 0.0
    tidy = Tidying(lambda: now)
    assert tidy.timeout_s is None
    for _ in range(5):  # a busy server rests often, but never for long
        tidy.rested()
        now += 0.9 * AFTER_S
        tidy.worked()
        assert tidy.timeout_s is None
    tidy.rested()
    assert tidy.timeout_s == AFTER_S
    now += AFTER_S / 2
    tidy.rested()
    assert tidy.timeout_s == AFTER_S / 2
    assert not freed
    now += AFTER_S
    tidy.rested()
    assert freed == [1]
    tidy.rested()
    assert tidy.timeout_s is None
    assert freed == [1]


@pytest.mark.anyio
async def test_an_engine_at_rest_wakes_once_for_it(freed, tiny_model, monkeypatch):
    monkeypatch.setattr(tidying, "AFTER_S", 0.05)
    async with AsyncEngine(tiny_model("llama")) as engine:
        async with asyncio.timeout(30):
            while not freed:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert freed == [1]
        steps = (await engine.loaded.client.stats()).steps
        await engine.generate([5, 6, 7], SamplingParams(max_tokens=2))
        assert (await engine.loaded.client.stats()).steps > steps
        async with asyncio.timeout(30):
            while len(freed) < 2:
                await asyncio.sleep(0.01)


def test_giving_memory_back_harms_nothing():
    held = [bytearray(1000) for _ in range(1000)]
    for _ in range(2):
        device.free_heap()
    assert all(len(each) == 1000 for each in held)
