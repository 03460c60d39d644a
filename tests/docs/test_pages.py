"""The documentation builds, and what it says of commands, options and fields is so."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_mlx_caches import hooks as cache_hooks
from vllm_mlx_core.api import Kind
from vllm_mlx_core.cli import build_parser
from vllm_mlx_core.host import Host
from vllm_mlx_protocols import hooks as protocol_hooks
from vllm_mlx_protocols.openai.sampling import UNSUPPORTED
from vllm_mlx_protocols.openai.schema import ChatCompletionRequest, CompletionRequest

FOREIGN_OPTIONS = {"--group", "--no-deps", "--concurrency", "--repeats", "--startup", "--only", "--scale"}
"""Options of pip, bench/compare.py and bench/caches.py."""


def pages(root: Path) -> list[Path]:
    docs = [page for page in root.glob("docs/**/*.md") if "examples" not in page.relative_to(root).parts]
    return [root / "README.md", root / "CONTRIBUTING.md", *docs]


def known_options(parser: argparse.ArgumentParser) -> set[str]:
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                found |= known_options(subparser)
    return found


def test_the_site_builds_without_a_warning(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 0, done.stderr
    architecture = (tmp_path / "architecture" / "index.html").read_text(encoding="utf-8")
    assert "scheduler.py" in architecture
    assert "fonts.googleapis" not in architecture


def test_ci_runs_the_line_that_the_readme_shows(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"## Check\n\n```sh\n(.*?)```", readme, re.DOTALL)
    assert shown
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    assert script.endswith(f"\n{shown[1]}")
    assert os.access(root / ".ci" / "run", os.X_OK)


def test_readme_and_quick_start_begin_with_the_same_command(root: Path) -> None:
    first = [
        re.search(r"```sh\n(.*?)```", (root / page).read_text(encoding="utf-8"), re.DOTALL)
        for page in ("README.md", "docs/quickstart.md")
    ]
    assert first[0]
    assert first[1]
    assert first[0][1] == first[1][1]


def test_every_option_that_is_mentioned_exists(root: Path) -> None:
    added = argparse.ArgumentParser()
    for hooks in (cache_hooks, protocol_hooks):  # which the core does not know
        hooks.vllm_mlx_add_options(added)
    known = known_options(build_parser()) | known_options(added) | FOREIGN_OPTIONS
    for page in pages(root):
        mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        if page.name == "hooks.md":
            continue  # it adds options of its own
        assert mentioned <= known, f"{page.name}: {sorted(mentioned - known)}"


@pytest.mark.parametrize("request_type", [ChatCompletionRequest, CompletionRequest])
def test_every_field_of_the_openai_protocol_has_its_line(
    root: Path, request_type: type[ChatCompletionRequest] | type[CompletionRequest]
) -> None:
    page = (root / "docs" / "protocols" / "openai.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for field in request_type.model_fields:
        assert f"`{field}`" in rows, field


def test_every_refused_field_is_listed_as_refused(root: Path) -> None:
    page = (root / "docs" / "protocols" / "openai.md").read_text(encoding="utf-8")
    refused = page.partition("## Refused")[2].partition("\n## ")[0]
    fields = "".join(line.split("|")[1] for line in refused.splitlines() if line.startswith("| `"))
    names = set(re.findall(r"`(\w+)`", fields))
    assert names == set(UNSUPPORTED)


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("tool_parsers", "parsers"),
        ("reasoning_parsers", "parsers"),
        ("model_families", "plugins/model-families"),
        ("cache_policies", "plugins/cache-policies"),
    ],
)
def test_every_built_in_plugin_is_named_on_the_page_of_its_kind(root: Path, kind: Kind, page: str) -> None:
    text = (root / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for entry in Host().registries[kind]:
        if entry.distribution == "vllm-mlx-core":
            assert f"`{entry.name}`" in text, entry.name


def test_the_order_in_which_auto_tries_the_formats_is_the_documented_one(root: Path) -> None:
    from vllm_mlx_parsers.tools.auto import FORMS

    page = (root / "docs" / "parsers.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\d+\. `(\w+)`", page.partition("in this order.")[2], re.MULTILINE)
    registry = Host().registries["tool_parsers"]
    assert [registry.get(name) for name in documented] == [form.parser for form in FORMS]
