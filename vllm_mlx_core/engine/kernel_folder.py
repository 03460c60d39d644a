"""Where MLX keeps the kernels that it compiles on a Linux CPU. Imports no MLX: it must be settled before MLX computes.

MLX keeps and loads them below TMPDIR, under a path that is the same for everybody: another user's kernels would be in
the way there, or be meant to be loaded. It writes each under another name first, but syncs nothing, so that a power cut
can leave one that is cut short; mapping that ends the process.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
import tempfile
import time
from pathlib import Path

LEFT_OVER_AFTER_S = 3600.0
"""A compiler's unfinished output that is older has nobody who waits for it."""
_SECTIONS = struct.Struct("<40xQ10xHH2x")
"""Of the header of a 64-bit ELF file: offset, entry size and number of the section headers, which come last."""


def keep_private() -> None:
    """Let this process keep its kernels in the user's own cache folder. For programs that own their process.

    Sets TMPDIR; Python's own temporary files stay where they are. No-op on macOS, and if there is no folder that only
    this user can write to.
    """
    if sys.platform != "linux":
        return
    try:
        folder = _cache_home() / "vllm-mlx" / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
        if info.st_uid != os.geteuid() or info.st_mode & 0o022:
            return
        _remove_what_is_unfinished(folder)
    except (OSError, RuntimeError):
        return
    with contextlib.suppress(OSError):
        tempfile.gettempdir()  # decided now, and remembered
    os.environ["TMPDIR"] = str(folder)


def _cache_home() -> Path:
    """Return the XDG base directory of caches. Raises RuntimeError if there is no home."""
    asked = os.environ.get("XDG_CACHE_HOME", "")
    return Path(asked) if os.path.isabs(asked) else Path.home() / ".cache"


def _remove_what_is_unfinished(folder: Path) -> None:
    """Remove libraries that are cut short and what compilers left behind."""
    for library in folder.rglob("lib*.so"):
        if not _is_whole(library):
            library.unlink(missing_ok=True)
    for left_over in folder.rglob("tmp_*"):
        with contextlib.suppress(FileNotFoundError):  # another server finished it just now
            if time.time() - left_over.stat().st_mtime > LEFT_OVER_AFTER_S:
                left_over.unlink()


def _is_whole(library: Path) -> bool:
    """Return whether a library is as long as its header says."""
    with library.open("rb") as file:
        header = file.read(_SECTIONS.size)
        size = os.fstat(file.fileno()).st_size
    if len(header) < _SECTIONS.size or not header.startswith(b"\x7fELF"):
        return False
    offset, entry_size, count = _SECTIONS.unpack(header)
    return bool(offset + entry_size * count <= size)
