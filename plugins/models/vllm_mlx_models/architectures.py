"""Which architectures the installed mlx-lm has, read from its files: importing it takes a second."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any


def is_known(config: Mapping[str, Any]) -> bool:
    """Return whether mlx-lm has a model for this config's model_type, directly or by another name."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not _is_file_name(model_type):
        return False
    if _has_module(model_type):
        return True
    renamed, by_architecture = _renamed_types()
    target = renamed.get(model_type)
    if target is not None and _has_module(target):
        return True
    names = config.get("architectures") or ()
    names = (names,) if isinstance(names, str) else names
    return any((model_type, name) in by_architecture for name in names)


def mlx_lm_version() -> str:
    """Return the installed mlx-lm's version, or "none"."""
    try:
        return metadata.version("mlx-lm")
    except metadata.PackageNotFoundError:
        return "none"


def _is_file_name(model_type: str) -> bool:
    return bool(model_type) and all(character.isalnum() or character in "_-." for character in model_type)


def _has_module(model_type: str) -> bool:
    folder = _package_folder()
    return folder is not None and (folder / "models" / f"{model_type}.py").is_file()


@cache
def _package_folder() -> Path | None:
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _renamed_types() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return mlx-lm's two tables of renamed types: by model_type, and by model_type and architecture."""
    folder = _package_folder()
    tables: dict[str, Any] = {}
    if folder is not None:
        tree = ast.parse((folder / "utils.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in ("MODEL_REMAPPING", "MODEL_ARCHITECTURE_REMAPPING"):
                    tables[name] = ast.literal_eval(node.value)
    return tables.get("MODEL_REMAPPING", {}), tables.get("MODEL_ARCHITECTURE_REMAPPING", {})
