"""Command-line agents from PyPI, headless, each in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .clients import await_idle, environment, python_packages

pytestmark = pytest.mark.packaging

ADD = '''
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"The sum is {a + b}."
'''


def run(command, cwd, env):
    result = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_llm(server, tmp_path):
    programs = python_packages("llm", ["llm==0.36.*"])
    model = {"model_id": "local", "model_name": "default", "api_base": f"{server}/v1", "supports_tools": True}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model]))
    call = '#echo-results\n<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": 2}}\n</tool_call>'
    command = [programs / "llm", "-m", "local", "--key", "none", "--functions", ADD]
    env = environment(tmp_path, LLM_USER_PATH=str(tmp_path))
    assert run([*command, call], tmp_path, env).strip() == "The sum is 42."
    logged = json.loads(run([programs / "llm", "logs", "--json", "-n", "0"], tmp_path, env))
    assert [len(response["tool_calls"]) for response in logged] == [1, 0]
    await_idle(server)


EDIT = """Do this:

sum.py
```python
<<<<<<< SEARCH
print(40)
=======
print(40 + 2)
>>>>>>> REPLACE
```
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="aider needs an older Python")
def test_aider(server, tmp_path):
    """It has no tool calls: it applies the edits of an answer, runs a command and tells the model what came of it."""
    programs = python_packages("aider", ["aider-chat==0.86.*"])
    prices = tmp_path / ".aider/caches/model_prices_and_context_window.json"
    prices.parent.mkdir(parents=True)
    prices.write_text("{}")  # or it would look for them in the internet
    (tmp_path / "sum.py").write_text("print(40)\n")
    quiet = ["--analytics-disable", "--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"]
    command = [
        programs / "aider",
        "--model",
        "openai/default",
        "--edit-format",
        "diff",
        "--no-git",
        "--map-tokens",
        "0",
    ]
    told = run(
        [
            *(*command, *quiet, "--no-pretty", "--no-detect-urls", "--no-suggest-shell-commands", "--yes-always"),
            *("--auto-test", "--test-cmd", f"{sys.executable} sum.py; exit 1", "--message", EDIT, "sum.py"),
        ],
        tmp_path,
        environment(
            tmp_path, OPENAI_API_BASE=f"{server}/v1", OPENAI_API_KEY="none", LITELLM_LOCAL_MODEL_COST_MAP="True"
        ),
    )
    assert (tmp_path / "sum.py").read_text() == "print(40 + 2)\n"
    _, edited, answered = told.partition("Applied edit to sum.py")
    assert edited
    assert "And got this output:\n\n42\n" in answered  # which the model was told, and says again
    await_idle(server)
