"""Real clients against a real server with the scripted model.

The server is started once. To run the clients against one that runs already, set VLLM_MLX_E2E_URL to its address;
it must serve the scripted model with the parsers below.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest

COMMAND = [
    *(sys.executable, "-m", "vllm_mlx_core", "serve", "scripted", "--plugin", "vllm_mlx_core.testing.scripted"),
    *("--tool-call-parser", "hermes", "--reasoning-parser", "think"),
]
START_TIMEOUT_S = 120


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The address of a running server, without a path."""
    if url := os.environ.get("VLLM_MLX_E2E_URL"):
        yield url.rstrip("/")
        return
    port = free_port()
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as sink:
        process = subprocess.Popen([*COMMAND, "--port", str(port)], stdout=sink, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        await_health(url, process, log)
        yield url
    finally:
        process.terminate()
        try:
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()


def free_port():
    """A port of loopback that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_health(url, process, log):
    """Wait until the server answers, or fail with its log."""
    deadline = time.monotonic() + START_TIMEOUT_S
    ended = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=START_TIMEOUT_S).status_code == 200:
                return
        except httpx.TransportError:  # it does not listen yet
            select.select([] if ended is None else [ended], [], [], 0.1)
    pytest.fail(f"The server does not start:\n{log.read_text()}")


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
