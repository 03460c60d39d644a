"""Where converted and unpacked models are kept, and how a folder gets there whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vllm_mlx_core.api import ModelError


def cache_dir() -> Path:
    """Return the folder for models we make: ``VLLM_MLX_CACHE_DIR``, else the user's cache folder."""
    if chosen := os.environ.get("VLLM_MLX_CACHE_DIR"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vllm-mlx"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vllm-mlx"


_ABANDONED_AFTER_S = 24 * 3600.0
"""A scratch file that nobody has written to for so long was left by a process that was killed."""


def ensure_writable(folder: Path) -> None:
    """Make ``folder`` if it is not there. Raises ModelError if files cannot be made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ModelError(_cannot_write(folder, error)) from error


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that becomes ``target`` if the block succeeds.

    If another process made ``target`` meanwhile, that one stays. Raises ModelError if the disk is full or read-only.
    """
    ensure_writable(target.parent)
    _remove_abandoned(target.parent, f".{target.name}-*")
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ModelError(_cannot_write(target, error)) from error
    try:
        yield scratch
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    except OSError as error:
        raise ModelError(_cannot_write(target, error)) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path beside ``target``, of the same suffix, that becomes ``target`` if the block succeeds."""
    _remove_abandoned(target.parent, f".*-{target.name}")
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    try:
        yield scratch
        scratch.replace(target)
    except OSError as error:
        raise ModelError(_cannot_write(target, error)) from error
    finally:
        scratch.unlink(missing_ok=True)


def _remove_abandoned(folder: Path, pattern: str) -> None:
    """Remove what killed processes left under this pattern: half-written models are large."""
    for path in folder.glob(pattern):
        with suppress(OSError):  # another process may do the same
            if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _cannot_write(target: Path, error: OSError) -> str:
    return (
        f"Cannot write the model cache {target}: {error.strerror or error}. "
        "VLLM_MLX_CACHE_DIR chooses another folder for it."
    )
