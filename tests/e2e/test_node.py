"""The npm packages that JavaScript programs use. Each script prints one JSON line of what the client understood."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import ARGUMENTS, CALL

HERE = Path(__file__).parent / "node"
PACKAGES = ("openai@6", "ai@6", "@ai-sdk/openai-compatible@2", "zod@4")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vllm-mlx-tests" / "node"

pytestmark = [pytest.mark.node, pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js")]


@pytest.fixture(scope="session")
def node_modules():
    """A folder with the packages, installed once and kept."""
    stamp = CACHE / "installed"
    if not stamp.is_file() or stamp.read_text() != " ".join(PACKAGES):
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "package.json").write_text('{"private": true, "type": "module"}')
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *PACKAGES]
        subprocess.run(command, cwd=CACHE, check=True, timeout=240)
        stamp.write_text(" ".join(PACKAGES))
    return CACHE


@pytest.fixture
def run(node_modules, base_url):
    def run_script(name):
        script = node_modules / name  # Node looks for packages beside the script
        shutil.copyfile(HERE / name, script)
        result = subprocess.run(
            ["node", str(script), base_url, CALL], capture_output=True, text=True, timeout=120, cwd=node_modules
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout.splitlines()[-1])

    return run_script


EXPECTED = {
    "text": "Hello 👋",
    "streamed": "Hello 👋",
    "reasoning": "Hm.",
    "call": {"name": "get_weather", "arguments": ARGUMENTS},
    "streamedCall": {"name": "get_weather", "arguments": ARGUMENTS},
    "finish": "tool_calls",
    "status": 404,
}


def test_openai(run):
    assert run("openai.mjs") == EXPECTED


def test_ai_sdk(run):
    assert run("ai-sdk.mjs") == EXPECTED | {"finish": "tool-calls"}
