"""What an engine does when there is nothing to do."""

from __future__ import annotations

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import SamplingParams
from vllm_mlx_core.engine import core, device

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
async def test_it_gives_memory_back_but_not_all_the_time(every_s, tiny_model, monkeypatch):
    freed: list[int] = []
    monkeypatch.setattr(core, "FREE_HEAP_EVERY_S", every_s)
    monkeypatch.setattr(device, "free_heap", lambda: freed.append(1))
    async with AsyncEngine(tiny_model("llama")) as engine:
        for _ in range(2):
            await engine.generate([5, 6, 7], SamplingParams(max_tokens=2))
    if every_s:
        assert len(freed) == 1
    else:
        assert len(freed) >= 3, "at the start and after each request"


def test_giving_memory_back_harms_nothing():
    held = [bytearray(1000) for _ in range(1000)]
    for _ in range(2):
        device.free_heap()
    assert all(len(each) == 1000 for each in held)
