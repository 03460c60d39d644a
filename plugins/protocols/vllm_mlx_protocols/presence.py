"""Which servers use the same database, and which of those that did are gone."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path


class Presence:
    """Marks this server as one that uses a database, by a locked file in a folder beside it.

    The lock ends with the process, whatever ends that. ``id`` is what others know this server by.
    """

    def __init__(self, folder: str) -> None:
        """Come. ``folder`` is made if need be; what servers that died left in it is removed. Raises OSError."""
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.id = secrets.token_hex(8)
        draft = self._folder / f".{self.id}"  # others look at it only when it has its lock
        self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        draft.rename(self._folder / self.id)
        for other in self._folder.glob("[!.]*"):
            self.is_alive(other.name)

    def is_alive(self, server: str) -> bool:
        """Return whether the server of this id still runs. Forgets it if it does not."""
        if server == self.id:
            return True
        path = self._folder / server
        try:
            file = os.open(path, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(file)

    def leave(self) -> None:
        """Go. Called once."""
        (self._folder / self.id).unlink(missing_ok=True)
        os.close(self._file)
