"""What the README and the documentation show works as pasted, against a real server with the demonstration model."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + [
    page for pattern in ("docs/*.md", "docs/plugins/*.md", "docs/protocols/*.md") for page in sorted(ROOT.glob(pattern))
]
RUN_PAGES = ["README.md", "docs/quickstart.md", "docs/python-api.md", "docs/protocols/openai.md"]
SHOWN_ADDRESS = "http://127.0.0.1:8000"


class Sample(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def samples(page: Path) -> list[Sample]:
    text = page.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    name = str(page.relative_to(ROOT))
    return [Sample(name, text[: block.start()].count("\n") + 1, block[1], block[2]) for block in blocks]


ALL = [sample for page in PAGES for sample in samples(page)]
ASKING = [s for s in ALL if s.page in RUN_PAGES and s.language == "sh" and ("curl " in s.code or "<<'EOF'" in s.code)]
SCRIPTS = [s for s in ALL if s.page in RUN_PAGES and s.language == "python"]
PYTHON = [s for s in ALL if s.language == "python" and "--8<--" not in s.code]


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def at(url: str, code: str) -> str:
    """Return a sample as it would be pasted, but for the address and the environment it runs in."""
    assert SHOWN_ADDRESS in code
    return code.replace(SHOWN_ADDRESS, url)


def test_there_are_samples_of_every_way_to_ask() -> None:
    assert [sample for sample in ASKING if sample.page == "README.md" and "curl" in sample.code]
    assert [sample for sample in ASKING if sample.page == "README.md" and "from openai import" in sample.code]
    assert [sample for sample in SCRIPTS if sample.page == "README.md"]


@pytest.mark.smollm2
@pytest.mark.parametrize("sample", ASKING, ids=str)
def test_a_shell_sample_gets_an_answer(sample: Sample, server_url: str) -> None:
    code = at(server_url, sample.code)
    code = code.replace(".venv/bin/pip install openai && .venv/bin/python", sys.executable)  # it is installed here
    code = code.replace("curl ", "curl --fail-with-body --silent --show-error ")
    answer = run(["bash", "-euo", "pipefail", "-c", code])
    if "capital of France" in sample.code:
        assert "Paris" in answer
    else:
        assert answer.strip()


@pytest.mark.smollm2
@pytest.mark.parametrize("sample", SCRIPTS, ids=str)
def test_a_python_sample_runs_and_prints(sample: Sample, request: pytest.FixtureRequest) -> None:
    code = sample.code
    if SHOWN_ADDRESS in code:
        code = at(request.getfixturevalue("server_url"), code)
    answer = run([sys.executable, "-W", "error::SyntaxWarning", "-"], code)
    assert answer.strip()
    if "capital of France" in sample.code:
        assert "Paris" in answer


@pytest.mark.parametrize("sample", PYTHON, ids=str)
def test_python_in_the_documentation_names_only_what_exists(sample: Sample) -> None:
    for node in ast.walk(ast.parse(sample.code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vllm_mlx_core"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"
