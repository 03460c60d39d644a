from __future__ import annotations

import pytest

from vllm_mlx_core.api import Settings
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect
from vllm_mlx_protocols.openai import OpenAIFrontend


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
async def client(engine):
    settings = Settings(max_completions=8, max_request_tokens=1000)
    async with connect(assemble(engine, [OpenAIFrontend(engine, settings)], settings)) as client:
        yield client
