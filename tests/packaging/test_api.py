"""The public surface is complete, sorted and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_mlx_core import api

MODULES = [importlib.import_module(f"vllm_mlx_core.api.{info.name}") for info in pkgutil.iter_modules(api.__path__)]


def described_names(path: Path) -> set[str]:
    """Return the names that a module assigns at its top level and describes by a string below."""
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    found = set()
    for statement, following in pairwise(statements):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_names_are_sorted_and_there_once():
    assert list(api.__all__) == sorted(set(api.__all__), key=lambda name: (not name.isupper(), name))


def test_every_name_can_be_imported():
    assert [name for name in api.__all__ if not hasattr(api, name)] == []


def test_everything_that_is_imported_is_exported():
    modules = {module.__name__.rpartition(".")[2] for module in MODULES}
    public = {name for name in vars(api) if not name.startswith(("_", "@"))} - modules  # "@": pytest's rewriting
    assert public == set(api.__all__) - modules


def test_every_public_class_and_function_of_the_modules_is_exported():
    missing = [
        f"{module.__name__}.{name}"
        for module in MODULES
        for name, value in vars(module).items()
        if not name.startswith(("_", "vllm_mlx_"))
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
        and name not in api.__all__
    ]
    assert missing == []


@pytest.mark.parametrize("name", api.__all__)
def test_a_name_has_a_docstring(name):
    value = getattr(api, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__doc__
        assert not value.__doc__.startswith(f"{name}("), "a generated docstring says nothing"
    else:
        assert any(name in described_names(Path(str(module.__file__))) for module in MODULES)
