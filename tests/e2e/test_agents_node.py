"""Coding agents from npm, headless: the prompt is the model's tool call, and the answer is the tool's result."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from .clients import await_idle, environment, npm_packages

SECRET = "The secret is 7431."

pytestmark = [pytest.mark.node, pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js")]


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def notes(tmp_path):
    """A file in the folder that the agent works in."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text(f"{SECRET}\n")
    return folder / "notes.txt"


def prompt(tool, **arguments):
    call = json.dumps({"name": tool, "arguments": arguments})
    return f"#echo-results\n<tool_call>\n{call}\n</tool_call>"


def events(command, **options):
    """Run an agent that prints an event in JSON on each line."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


CODEX_CONFIG = """
model = "default"
model_provider = "local"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.local]
name = "local"
base_url = "{server}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


def test_codex(server, home, notes):
    codex = npm_packages("codex", ["@openai/codex@0.171"]) / "node_modules/.bin/codex"
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(CODEX_CONFIG.format(server=server))
    command = [codex, "exec", "--sandbox", "read-only", "--skip-git-repo-check", "--json"]
    said = events(
        [*command, prompt("exec_command", cmd="cat notes.txt")],
        cwd=notes.parent,
        env=environment(home),
        stdin=subprocess.DEVNULL,
    )
    items = [event["item"] for event in said if event["type"] == "item.completed"]
    (ran,) = (item for item in items if item["type"] == "command_execution")
    (answer,) = (item for item in items if item["type"] == "agent_message")
    assert (ran["exit_code"], ran["aggregated_output"]) == (0, f"{SECRET}\n")
    assert SECRET in answer["text"]
    assert said[-1]["type"] == "turn.completed"
    assert said[-1]["usage"]["cached_input_tokens"] > 0  # the second request goes on where the first ended
    await_idle(server)


QUIET = {f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")}


def opencode_config(server, package):
    model = {"name": "default", "tool_call": True, "limit": {"context": 131_072, "output": 4096}}
    options = {"baseURL": f"{server}/v1", "apiKey": "none"}
    return {
        "model": "local/default",
        "small_model": "local/default",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"local": {"npm": package, "name": "local", "options": options, "models": {"default": model}}},
    }


@pytest.mark.parametrize("package", ["@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic"])
def test_opencode(server, home, notes, package):
    opencode = npm_packages("opencode", ["opencode-ai@1.18"]) / "node_modules/.bin/opencode"
    (notes.parent / "opencode.json").write_text(json.dumps(opencode_config(server, package)))
    said = events(
        [opencode, "run", "--title", "notes", "--format", "json"],
        input=prompt("read", filePath=str(notes)),  # it would put quotes around an argument
        cwd=notes.parent,
        env=environment(home, **QUIET),
    )
    (used,) = (event["part"] for event in said if event["type"] == "tool_use")
    (answer,) = (event["part"] for event in said if event["type"] == "text")
    reasons = [event["part"]["reason"] for event in said if event["type"] == "step_finish"]
    assert (used["tool"], used["state"]["status"]) == ("read", "completed")
    assert SECRET in used["state"]["output"]
    assert SECRET in answer["text"]
    assert reasons == ["tool-calls", "stop"]
    await_idle(server)
