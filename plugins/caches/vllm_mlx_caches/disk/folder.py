"""A folder of files that appear whole or not at all, and together stay below a size. Any thread.

Several processes may use one folder. They need no lock: what is there was written to its end, and a file that another
process has removed is one that was not found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from vllm_mlx_core.api import UsageError

from . import names

_TEMPORARY = re.compile(r"\.vllm-mlx-[0-9a-f]+-[0-9]+\.tmp")
ABANDONED_S = 3600.0
"""Age at which a temporary file is that of a process which has ended."""

DEFAULT_MAX_GB = 10.0
MAX_GB = 1e9
"""More than any disk holds."""


class _File(NamedTuple):
    used: int
    name: str
    nbytes: int
    is_temporary: bool


class Folder:
    """Files of parts in ``path``, in all at most ``max_bytes``. What else lies in there is left alone."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.nbytes = 0
        """Bytes of all files when they were last counted."""
        self._nonce = secrets.token_hex(8)  # process ids repeat: in each container there is a 1
        self._numbers = count()

    def prepare(self) -> None:
        """Make the folder, for its owner's eyes only, and write to it. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(self._create(probe := self._temporary()))
        probe.unlink()

    def names(self) -> list[str]:
        """Return the names of all files of parts. Raises OSError."""
        return [name for name in os.listdir(self.path) if names.parse(name) is not None]

    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises OSError, also for what is no regular file and might never end."""
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK)  # or a pipe waits for a writer
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            return file.read()

    def write(self, name: str, pieces: Sequence[bytes | memoryview]) -> bool:
        """Store a file, after removing those least recently used for it; return whether it is there. Raises OSError."""
        if os.path.isfile(self.path / name):
            return True
        nbytes = sum(map(len, pieces))
        if not self._make_room(nbytes):
            return False
        temporary = self._temporary()
        try:
            with open(self._create(temporary), "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.nbytes += nbytes
        return True

    def touch(self, chain: Iterable[str]) -> list[str]:
        """Note that files are used, the first of them last; return the names of those that are not there.

        So what others build upon is the last to be removed.
        """
        now, gone = time.time_ns(), []
        for age, name in enumerate(chain):
            try:
                os.utime(self.path / name, ns=(now - age, now - age))
            except OSError:
                gone.append(name)
        return gone

    def delete(self, name: str) -> None:
        """Remove a file, if it is there. Raises OSError if it is there to stay."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / name).unlink()

    def count(self) -> int:
        """Count the bytes of all files, those of other processes and models included. Raises OSError."""
        self.nbytes = sum(file.nbytes for file in self._files())
        return self.nbytes

    def _make_room(self, nbytes: int) -> bool:
        """Remove files until there is room for ``nbytes``; return whether there is.

        Temporary files take room, but stay: somebody is writing them. Raises OSError if files that cannot be removed
        are in the way.
        """
        if nbytes > self.max_bytes:
            return False
        files = sorted(self._files())
        held = sum(file.nbytes for file in files)
        failure: OSError | None = None
        for file in files:
            if held + nbytes <= self.max_bytes:
                break
            if file.is_temporary:
                continue
            try:
                self.delete(file.name)
            except OSError as error:
                failure = error
            else:
                held -= file.nbytes
        self.nbytes = held
        has_room = held + nbytes <= self.max_bytes
        if failure is not None and not has_room:
            raise failure
        return has_room

    def _files(self) -> list[_File]:
        """Return all files of parts, and temporary ones that may still become some; remove those that will not."""
        found = []
        oldest = time.time_ns() - int(ABANDONED_S * 1e9)
        with os.scandir(self.path) as entries:
            for entry in entries:
                is_temporary = _TEMPORARY.fullmatch(entry.name) is not None
                if not is_temporary and names.parse(entry.name) is None:
                    continue
                try:
                    about = entry.stat(follow_symlinks=False)
                except OSError:  # another process has removed it
                    continue
                if not stat.S_ISREG(about.st_mode):
                    continue
                if is_temporary and about.st_mtime_ns < oldest:
                    with contextlib.suppress(OSError):  # it stays, and counts
                        self.delete(entry.name)
                        continue
                found.append(_File(about.st_mtime_ns, entry.name, about.st_size, is_temporary))
        return found

    def _temporary(self) -> Path:
        return self.path / f".vllm-mlx-{self._nonce}-{next(self._numbers)}.tmp"

    def _create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def open_folder(directory: str, max_gb: float) -> Folder:
    """Return a folder that can be written to, which is made if need be; ``max_gb`` is above 0 and at most ``MAX_GB``.

    Raises UsageError.
    """
    folder = Folder(Path(directory).expanduser(), int(max_gb * 1e9))
    try:
        folder.prepare()
    except FileExistsError as error:
        raise UsageError(f"States cannot be kept in {directory}: it is not a folder.") from error
    except OSError as error:
        raise UsageError(f"States cannot be kept in {directory}: {error.strerror or error}.") from error
    return folder
