"""Generators to compute with, and a way to wait for an engine."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import Checkpoint, Generator, LoadOptions
from vllm_mlx_core.host import Host


@pytest.fixture
def generator(tiny_model):
    """Return a function that loads the compute half of a tiny model."""
    host = Host()
    host.load([])

    def load(architecture: str) -> Generator:
        checkpoint = Checkpoint(tiny_model(architecture))
        family = host.model_families.get(host.detect_family(checkpoint))
        return family(checkpoint, LoadOptions()).load_generator()

    return load


@pytest.fixture
def step_counter(monkeypatch) -> list[int]:
    """Return the numbers of prompt tokens that engines with the plugin ``step_counter`` compute, one for each step."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "plugins"))
    counted: list[int] = importlib.import_module("step_counter").counted
    counted.clear()
    return counted


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
