from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of `vllm-mlx serve`, with the demonstration model."""
    command = [sys.executable, "-m", "vllm_mlx_core", "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ)
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"^\s+address\s+(http://\S+)", line):
            return found[1]
    raise AssertionError(f"the server ended with {process.wait(DEADLINE_S)} before it was ready")
