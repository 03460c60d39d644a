"""Tiny models and engines for the engine tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import EngineSettings, SamplingParams, Settings
from vllm_mlx_core.engine import device
from vllm_mlx_core.testing import write_tiny_model

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Return a function that writes a tiny model once per run and returns its folder."""
    device.prepare()
    root = tmp_path_factory.mktemp("models")

    def get(architecture: str, **options) -> str:
        path = root / "-".join([architecture, *map(str, options.values())])
        if not path.exists():
            write_tiny_model(architecture, path, **options)
        return str(path)

    return get


def settings(**engine) -> Settings:
    """Return settings for an engine that is not hurried."""
    return Settings(timeout_s=240, engine=replace(EngineSettings(), **engine))


def greedy(max_tokens: int, **more) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, **more)


async def token_ids(engine: AsyncEngine, prompt: Sequence[int] | str, sampling: SamplingParams) -> list[int]:
    """Return the tokens of one completion."""
    return (await engine.generate(list(prompt) if not isinstance(prompt, str) else prompt, sampling)).token_ids


async def until_idle(engine: AsyncEngine) -> None:
    """Wait until the engine itself says that nothing runs or waits."""
    async with asyncio.timeout(30):
        while True:
            health = engine.loaded.client.health()
            if not (health["running"] or health["waiting"] or health["requests"]):
                return
            await asyncio.sleep(0.005)
