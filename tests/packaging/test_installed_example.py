"""A stranger's package, installed beside the wheel in an environment of its own, takes part."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from .conftest import run

pytestmark = pytest.mark.packaging

CALL = 'I look it up.\nCALL weather {"city": "Łódź"}\n'


@pytest.fixture(scope="module")
def url(environment: Any) -> Iterator[str]:
    """Serve the scripted model with the example's parser; the banner says where."""
    command = [environment.bin / "vllm-mlx", "serve", "scripted", "--plugin", "vllm_mlx_core.testing.scripted"]
    command += ["--tool-call-parser", "acme", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        seen = []
        try:
            for line in server.stdout:
                seen.append(line)
                if line.split()[:1] == ["address"]:
                    break
            else:
                pytest.fail("The server ended before it was ready:\n" + "".join(seen))
            yield line.split()[1]
            server.send_signal(signal.SIGTERM)
            server.stdout.read()
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()


def ask(url: str, **more: Any) -> dict[str, Any]:
    weather = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    messages = [{"role": "user", "content": CALL}]
    return {
        "url": f"{url}/v1/chat/completions",
        "json": {"model": "default", "messages": messages, "tools": [weather]} | more,
    }


def test_everything_comes_from_the_wheels(environment, tmp_path):
    code = (
        "import vllm_mlx_core, vllm_mlx_parsers, vllm_mlx_models, vllm_mlx_caches, vllm_mlx_protocols\n"
        "import acme_vllm_mlx_parsers, sys\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    if 'vllm_mlx' in name and '.' not in name and name != '__editable___vllm_mlx_core': print(module.__file__)"
    )
    files = environment.python("-c", code, cwd=tmp_path).stdout.splitlines()
    assert len(files) == 6
    assert all(file.startswith(str(environment.site_packages)) for file in files), files


def test_the_example_is_listed_and_passes_the_check(environment, tmp_path):
    done = run(environment.bin / "vllm-mlx", "plugins", "--check", "--json", cwd=tmp_path)
    (acme,) = [row for row in json.loads(done.stdout) if row["name"] == "acme"]
    assert (acme["kind"], acme["distribution"], acme["state"]) == ("tool_parsers", "acme-vllm-mlx-parsers", "ok")


def test_its_own_tests_pass(environment, root, tmp_path):
    tests = root / "docs" / "examples" / "acme-vllm-mlx-parsers" / "tests"
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_acme.py").write_text((tests / "test_acme.py").read_text(encoding="utf-8"), encoding="utf-8")
    environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path, cwd=tmp_path)


def test_its_parser_finds_the_call_in_a_whole_answer(url):
    response = httpx.post(**ask(url), timeout=60)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look it up.\n"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Łódź"}


def test_its_parser_finds_the_call_in_a_stream(url):
    content, name, arguments, finish = "", "", "", None
    with httpx.stream("POST", **ask(url, stream=True), timeout=60) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                content += choice["delta"].get("content") or ""
                finish = choice["finish_reason"] or finish
                for call in choice["delta"].get("tool_calls") or ():
                    name += call["function"].get("name") or ""
                    arguments += call["function"].get("arguments") or ""
    assert (content, name, json.loads(arguments), finish) == (
        "I look it up.\n",
        "weather",
        {"city": "Łódź"},
        "tool_calls",
    )
