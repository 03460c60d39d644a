"""What every test shares."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import settings

from vllm_mlx_core.engine import device

from .real_data import FIXTURES, real_templates, real_tokenizer, real_tokenizer_folder

__all__ = ["anyio_backend", "real_templates", "real_tokenizer", "real_tokenizer_folder"]

device.prepare()  # before anything imports MLX: see the module's docstring


_state = tempfile.TemporaryDirectory(prefix="vllm-mlx-state-")
os.environ["XDG_STATE_HOME"] = _state.name  # servers under test keep nothing in the home of whoever runs the tests


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the server does."""
    return "asyncio"


settings.register_profile("tests", settings(), deadline=None)  # a busy machine must not turn a test red
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "realdata: fetches published chat templates or tokenizers, once")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use what must be fetched, so that ``-m "not realdata"`` leaves them out."""
    for item in items:
        if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("realdata")
