"""litellm brings many packages and pins, so it is installed apart and asked to say what it understood."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .clients import LONG, await_idle, environment, python_packages
from .conftest import ARGUMENTS, CALL

pytestmark = pytest.mark.packaging
SCRIPT = Path(__file__).with_name("litellm_script.py")
CALLED = {"name": "get_weather", "arguments": ARGUMENTS}
EXPECTED = {
    "text": "Hello 👋",
    "streamed": "Hello 👋",
    "reasoning": "Hm.",
    "call": CALLED,
    "streamedCall": CALLED,
    "finish": "tool_calls",
    "afterTools": "sunny",
    "left": True,
    "missing": 404,
    "wrong": 400,
}


@pytest.fixture(scope="session")
def programs():
    return python_packages("litellm", ["litellm==1.110.*"])


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "anthropic"])
def test_litellm(programs, server, tmp_path, provider):
    (tmp_path / "long").write_text(LONG)
    with subprocess.Popen(
        [programs / "python", SCRIPT, server, CALL, tmp_path / "long", provider],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(tmp_path, LITELLM_LOCAL_MODEL_COST_MAP="True"),
    ) as process:
        assert process.stdin
        assert process.stdout
        said = process.stdout.readline()
        assert said, "it failed: see the captured standard error"
        await_idle(server)  # while the client lives: it is not its end that frees the engine
        process.stdin.close()
    assert json.loads(said) == EXPECTED
