"""The import contracts hold, and each of them bites: a file that breaks it makes the linter fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import copy_tree, run

PLUGIN_ROOTS = ("plugins/parsers", "plugins/models", "plugins/caches", "plugins/protocols")
VIOLATIONS = {
    "core-layers": ("vllm_mlx_core/api", "from vllm_mlx_core.host import Host"),
    "core-knows-no-plugin": ("vllm_mlx_core/engine", "from vllm_mlx_parsers import hooks"),
    "plugins-use-the-api": ("plugins/models/vllm_mlx_models", "from vllm_mlx_core.engine import messages"),
    "plugins-are-independent": ("plugins/caches/vllm_mlx_caches", "from vllm_mlx_parsers import hooks"),
    "light-modules": ("plugins/parsers/vllm_mlx_parsers", "import mlx.core"),
}
"""By contract: a folder, and an import that is wrong in it."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(("vllm_mlx_core", "plugins", "pyproject.toml"), tmp_path_factory.mktemp("tree"))


@pytest.fixture
def lint(tree: Path) -> Iterator[object]:
    def run_linter(*arguments: str) -> tuple[int, str]:
        paths = os.pathsep.join([str(tree), *(str(tree / root) for root in PLUGIN_ROOTS)])
        linter = Path(sys.executable).with_name("lint-imports")
        done = run(linter, "--no-cache", *arguments, cwd=tree, check=False, env={"PYTHONPATH": paths, "COLUMNS": "200"})
        return done.returncode, done.stdout + done.stderr

    yield run_linter
    for file in tree.rglob("violation.py"):
        file.unlink()


def test_the_project_keeps_its_contracts(lint):
    code, output = lint()
    assert code == 0, output


def test_every_contract_has_a_violation_to_try(pyproject):
    assert {contract["id"] for contract in pyproject["tool"]["importlinter"]["contracts"]} == set(VIOLATIONS)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_violation_breaks_its_contract_even_inside_a_function(tree, lint, contract, pyproject):
    folder, statement = VIOLATIONS[contract]
    (tree / folder / "violation.py").write_text(f"def f() -> None:\n    {statement}\n", encoding="utf-8")
    code, output = lint("--contract", contract)
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (name,) = [each["name"] for each in contracts if each["id"] == contract]
    assert code == 1, output
    assert f"{name} BROKEN" in output
    assert "violation" in output
