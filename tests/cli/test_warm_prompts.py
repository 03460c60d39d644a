"""The file of ``--warm-prompts``, and what does not go with it."""

import argparse
import json
import subprocess
import sys

import pytest

from vllm_mlx_core.api import Chat, Tool, UsageError
from vllm_mlx_core.cli import serve, serve_settings

SYSTEM = {"role": "system", "content": "Be brief."}
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.fixture
def settings(tmp_path):
    """Return a function from what the file holds, and further options, to settings."""

    def parse(content, *argv):
        file = tmp_path / "agents.json"
        file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        parser = argparse.ArgumentParser("vllm-mlx serve", allow_abbrev=False)
        serve.add_arguments(parser)
        return serve_settings.to_settings(parser.parse_args(["--warm-prompts", str(file), *argv]))

    return parse


def test_entries_are_lists_of_messages_or_objects(settings):
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
    bare = {"type": "function", "function": {"name": "g", "strict": None}}
    full = {"messages": [SYSTEM], "tools": [tool, bare], "chat_template_kwargs": {"enable_thinking": False}}
    first, second = settings([[SYSTEM], full]).warm_prompts
    assert first == Chat(messages=[SYSTEM])
    assert second.tools == (Tool("f", "d", SCHEMA, True), Tool("g"))
    assert second.template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[[{]", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        ({"messages": []}, "must hold a JSON list"),
        ([], "at least one"),
        ([[SYSTEM], "text"], "entry 2 is neither"),
        ([[]], "entry 1 has no messages"),
        ([[SYSTEM], ["text"]], r"entry 2: Expected `object`, got `str` - at `\$.messages\[0\]`"),
        ([[{"content": "x"}]], r"entry 1: messages\[0\] has no role"),
        ([{"messages": [SYSTEM], "tool": []}], "entry 1: .*unknown field `tool`"),
        ([{"messages": [SYSTEM], "tools": [{"name": "f"}]}], r"entry 1: .*`function` - at `\$.tools\[0\]`"),
        ([{"tools": []}], "entry 1: .*`messages`"),
    ],
)
def test_a_file_of_another_shape_ends_the_start(settings, content, reason):
    with pytest.raises(UsageError, match=f"--warm-prompts: .*agents.json.*{reason}"):
        settings(content)


def test_keys_that_share_nothing_would_not_find_what_was_warmed(settings):
    isolated = ("--cache-isolation", "key")
    assert settings([[SYSTEM]], *isolated).warm_prompts
    assert settings([[SYSTEM]], "--api-key", "k").warm_prompts
    with pytest.raises(UsageError, match="--cache-isolation none"):
        settings([[SYSTEM]], *isolated, "--api-key", "k")


@pytest.mark.parametrize(
    "argv", [["--warm-prompts", "/no/agents.json"], ["--cache", "off"], ["--disable-prefix-cache"]]
)
def test_a_file_that_is_missing_or_of_no_use_is_one_line(argv, tmp_path):
    file = tmp_path / "agents.json"
    file.write_text(json.dumps([[SYSTEM]]), encoding="utf-8")
    scripted = ["scripted", "--plugin", "vllm_mlx_core.testing.scripted", "--port", "0"]
    command = [sys.executable, "-m", "vllm_mlx_core", "serve", *scripted, "--warm-prompts", str(file), *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--warm-prompts" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
