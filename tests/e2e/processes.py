"""The program itself, serving the scripted model in a process of its own."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

COMMAND = [
    *(sys.executable, "-m", "vllm_mlx_core", "serve", "scripted", "--plugin", "vllm_mlx_core.testing.scripted"),
    *("--tool-call-parser", "hermes", "--reasoning-parser", "think"),
]
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


class Running(NamedTuple):
    """A server: its address without a path, its process, and the file that it logs to."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def process(folder: Path, *options: str, **environment: str) -> Iterator[Running]:
    """Serve, with log and state in ``folder``. In the end the server must stop when it is asked to."""
    port = free_port()
    log = folder / f"{port}.log"
    command = [*COMMAND, "--port", str(port), "--state-dir", str(folder / "state"), *options]
    with log.open("w") as sink:
        running = subprocess.Popen(command, env=os.environ | environment, stdout=sink, stderr=subprocess.STDOUT)
    server = Running(f"http://127.0.0.1:{port}", running, log)
    try:
        _await_health(server)
        yield server
        if running.poll() is None:
            running.terminate()
            assert running.wait(STOP_TIMEOUT_S) == 0, log.read_text()
    finally:
        running.kill()
        running.wait()


def free_port() -> int:
    """Return a port of loopback that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_health(server: Running) -> None:
    """Wait until the server answers, or fail with its log."""
    deadline = time.monotonic() + START_TIMEOUT_S
    ended = os.pidfd_open(server.process.pid) if hasattr(os, "pidfd_open") else None
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            if httpx.get(f"{server.url}/health", timeout=START_TIMEOUT_S).status_code == 200:
                return
        except httpx.TransportError:  # it does not listen yet
            select.select([] if ended is None else [ended], [], [], 0.1)
    pytest.fail(f"The server does not start:\n{server.log.read_text()}")
