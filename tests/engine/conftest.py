"""A way to wait for an engine."""

from __future__ import annotations

import asyncio

import pytest

from vllm_mlx_core import AsyncEngine


@pytest.fixture
def until_idle():
    """Return a function that waits until the engine itself says that nothing runs or waits."""

    async def wait(engine: AsyncEngine) -> None:
        async with asyncio.timeout(30):
            while True:
                health = engine.loaded.client.health()
                if not (health["running"] or health["waiting"] or health["requests"]):
                    return
                await asyncio.sleep(0.005)

    return wait
