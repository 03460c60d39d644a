"""Real clients against a real server with the scripted model.

The server is started once. To run the clients against one that runs already, set VLLM_MLX_E2E_URL to its address;
it must serve the scripted model with the parsers below.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from .processes import process


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The address of a running server, without a path."""
    if url := os.environ.get("VLLM_MLX_E2E_URL"):
        yield url.rstrip("/")
        return
    with process(tmp_path_factory.mktemp("server")) as running:
        yield running.url


@pytest.fixture
def base_url(server):
    return f"{server}/v1"


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2]}}\n</tool_call>'
ARGUMENTS = {"city": "Zürich", "days": [1, 2]}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "array"}}},
    },
}
