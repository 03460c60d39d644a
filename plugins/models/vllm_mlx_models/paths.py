"""Where converted and unpacked models are kept, and how a folder gets there whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``target`` that becomes ``target`` if the block succeeds.

    If another process made ``target`` meanwhile, that one stays. Raises ModelError if the disk is full or read-only.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
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
    scratch = target.with_name(f".{os.getpid()}-{target.name}")
    try:
        yield scratch
        scratch.replace(target)
    except OSError as error:
        raise ModelError(_cannot_write(target, error)) from error
    finally:
        scratch.unlink(missing_ok=True)


def _cannot_write(target: Path, error: OSError) -> str:
    return (
        f"Cannot write the model cache {target}: {error.strerror or error}. "
        "VLLM_MLX_CACHE_DIR chooses another folder for it."
    )
