"""The npm packages that JavaScript programs use. Each script prints one JSON line of what the client understood."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from .clients import LONG, await_idle, npm_packages
from .conftest import ARGUMENTS, CALL

HERE = Path(__file__).parent / "node"
PACKAGES = (  # the newest for Node.js 20
    *("openai@6", "@anthropic-ai/sdk@1"),
    *("ai@6", "@ai-sdk/openai-compatible@2", "@ai-sdk/openai@3", "@ai-sdk/anthropic@3", "zod@4"),
)

pytestmark = [pytest.mark.node, pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js")]


@pytest.fixture(scope="session")
def node_modules():
    return npm_packages("node", PACKAGES)


@pytest.fixture
def run(node_modules, server, tmp_path):
    def run_script(name, *arguments):
        scripts = tmp_path / "scripts"
        shutil.copytree(HERE, scripts)
        (scripts / "node_modules").symlink_to(node_modules / "node_modules")  # Node looks for packages beside a script
        (scripts / "package.json").write_text('{"type": "module"}')
        long = tmp_path / "long"
        long.write_text(LONG)
        result = subprocess.run(
            ["node", scripts / name, server, CALL, long, *arguments], capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        await_idle(server)
        return json.loads(result.stdout.splitlines()[-1])

    return run_script


CALLED = {"name": "get_weather", "arguments": ARGUMENTS}
EXPECTED = {
    "text": "Hello 👋",
    "streamed": "Hello 👋",
    "reasoning": "Hm.",
    "call": CALLED,
    "streamedCall": CALLED,
    "finish": "tool_calls",
    "afterTools": "sunny in Zürich",
    "left": True,
    "status": 404,
}


def test_openai(run):
    assert run("openai.mjs") == EXPECTED | {"completed": "Hello 👋", "completedStream": "Hello 👋"}


def test_openai_responses(run):
    assert run("openai-responses.mjs") == EXPECTED | {"finish": "completed", "continued": "Hello 👋"}


def test_anthropic(run):
    assert run("anthropic.mjs") == EXPECTED | {"finish": "tool_use", "counted": True}


@pytest.mark.parametrize("provider", ["openai", "openai-compatible", "anthropic"])
def test_ai_sdk(run, provider):
    assert run("ai-sdk.mjs", provider) == EXPECTED | {"finish": "tool-calls"}
