"""Whether another server uses the same database."""

from __future__ import annotations

import fcntl
import os


class Presence:
    """Marks a file as used for as long as it is held, by a lock that ends with the process whatever happens.

    ``is_first`` says whether nobody else held it when this one came.
    """

    def __init__(self, path: str) -> None:
        """Take the lock on ``path``, which is made if need be. Raises OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_first = True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_first = False
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Let go. Called once."""
        os.close(self._file)
