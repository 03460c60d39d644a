"""What ``vllm-mlx plugins new`` writes, and the example packages, work as they stand."""

from __future__ import annotations

import importlib
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from vllm_mlx_core.cli.scaffold import TEMPLATES, write_package
from vllm_mlx_core.host import Host

from .conftest import ROOT, copy_tree, run

EXAMPLES = sorted(path.name for path in (ROOT / "docs" / "examples").iterdir() if (path / "pyproject.toml").is_file())


def run_tests(folder: Path) -> str:
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(folder), "-c", str(folder / "pyproject.toml")]
    return run(sys.executable, "-m", "pytest", *options, "-o", "pythonpath=.", folder / "tests", cwd=folder).stdout


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_package_passes_its_own_tests_and_is_clean(kind, tmp_path):
    folder = write_package("acme-two", kind, tmp_path)
    assert " passed" in run_tests(folder)
    run(sys.executable, "-m", "ruff", "check", "--no-cache", ".", cwd=folder)
    run(sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".", cwd=folder)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_package_offers_what_it_was_made_for(kind, tmp_path, monkeypatch):
    folder = write_package("acme-two", kind, tmp_path)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "acme-two-vllm-mlx"
    assert any(requirement.startswith("vllm-mlx-core>=") for requirement in project["dependencies"])
    ((group, entries),) = project["entry-points"].items()
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    host = Host([EntryPoint(name, value, group) for name, value in entries.items()])
    host.load()
    registry = host.registries[TEMPLATES[kind].registry]
    try:
        assert registry.get("acme-two").__module__ == "acme_two_vllm_mlx"
    finally:
        del sys.modules["acme_two_vllm_mlx"]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes_its_own_tests(example, tmp_path):
    source = ROOT / "docs" / "examples" / example
    folder = copy_tree((source.relative_to(ROOT).as_posix(),), tmp_path) / source.relative_to(ROOT)
    assert " passed" in run_tests(folder)


def test_the_first_example_is_short(root):
    example = root / "docs" / "examples" / "acme-vllm-mlx-parsers"
    files = [file for pattern in ("*.py", "*.toml") for file in example.rglob(pattern)]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= 60
