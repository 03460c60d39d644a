"""What every test shares."""

from __future__ import annotations

import pytest
from hypothesis import settings

from vllm_mlx_core.engine import device

device.prepare()  # before anything imports MLX: see the module's docstring


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the server does."""
    return "asyncio"


settings.register_profile("tests", settings(), deadline=None)  # a busy machine must not turn a test red
settings.load_profile("tests")
