"""Models on this machine: what a reference may mean on disk, and what to say when it means nothing."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from vllm_mlx_core.api import Checkpoint, ModelError, ModelNotFound

GGUF_RECORD = "gguf.json"
"""Marks a folder whose files were made from a GGUF file, and says from which."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MODEL_SUFFIXES = (".gguf", ".safetensors", ".bin", ".json")


def find(reference: str) -> Path | None:
    """Return the file or folder that ``reference`` names, or None."""
    try:
        path = Path(reference).expanduser()
        return path if reference and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL character, no such home directory
        return None


def looks_like_path(reference: str) -> bool:
    """Return whether someone who writes ``reference`` means a path rather than a hub id."""
    return (
        reference.startswith(("/", ".", "~"))
        or "\\" in reference
        or reference.count("/") > 1
        or reference.endswith(("/", *_MODEL_SUFFIXES))
    )


def is_hub_id(reference: str) -> bool:
    """Return whether ``reference`` has the form ``org/name``."""
    return _HUB_ID.fullmatch(reference) is not None and ".." not in reference and "--" not in reference


def is_gguf(path: Path) -> bool:
    """Return whether ``path`` is a GGUF file, by its name or its first bytes."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".gguf":
        return True
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def is_converted_gguf(path: Path) -> bool:
    """Return whether ``path`` is a folder that was made from a GGUF file."""
    return (path / GGUF_RECORD).is_file()


def directory_checkpoint(path: Path, reference: str) -> Checkpoint:
    """Return the checkpoint in a folder. Raises ModelError if the folder holds none."""
    if path.is_file():
        raise ModelError(
            f"{reference} is a file, but not a GGUF file. Give the folder that holds config.json and the weights."
        )
    if not path.is_dir():
        raise ModelError(f"{reference} is neither a file nor a folder.")
    if not (path / "config.json").is_file():
        raise ModelError(f"{reference} holds no model: there is no config.json in it.{_inside(path)}")
    return Checkpoint(path=path, name=reference)


def not_found_message(reference: str) -> str:
    """Say that a path does not exist, up to where it does, and what similar names stand there."""
    path = Path(reference)
    if reference.startswith("~"):
        path = Path(os.path.expanduser(reference))  # unlike Path's own, no error for an unknown user
    parent = path.parent
    while not parent.is_dir() and parent != parent.parent:
        parent = parent.parent
    where = "" if parent == path.parent else f" ({parent} exists, what follows does not.)"
    return f"There is no file or folder {reference}.{where}{did_you_mean(reference)}"


def did_you_mean(reference: str) -> str:
    """Return a sentence that names similar models beside a path, or the empty string."""
    try:
        path = Path(reference).expanduser()
        beside = sorted(entry.name for entry in path.parent.iterdir() if entry.is_dir() or is_gguf(entry))
    except (OSError, ValueError, RuntimeError):
        return ""
    close = difflib.get_close_matches(path.name, beside, n=3, cutoff=0.5)
    return f" Did you mean {' or '.join(str(path.parent / name) for name in close)}?" if close else ""


def _inside(path: Path) -> str:
    """Point to models one level down, a common slip with downloaded collections."""
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise ModelNotFound(f"{path} cannot be read: {error.strerror}.") from error
    models = [entry.name for entry in entries if is_gguf(entry) or (entry / "config.json").is_file()]
    return f" But it holds {', '.join(models[:3])}: give one of those." if models else ""
