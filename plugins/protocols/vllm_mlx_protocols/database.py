"""SQLite files in which front-ends keep what outlives a request, or the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sqlite3
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from vllm_mlx_core.api import EngineFailed, UsageError

from .presence import Presence

log = logging.getLogger(__name__)

MEMORY = ":memory:"
_SPARE_BYTES = 16 * 2**20
"""What nothing large may take of the disk."""
_SHORT_LOG = "journal_size_limit = 16777216"
"""What a large change leaves of the log, in bytes; without it, all."""
_PRAGMAS = ("foreign_keys = ON", "secure_delete = ON", "journal_mode = WAL", "synchronous = NORMAL", _SHORT_LOG)
T = TypeVar("T")


class DatabaseFailed(EngineFailed):
    """A database cannot be read or written, as when the disk is full."""


class StorageFull(DatabaseFailed):
    """There is no room on the disk."""


class Database:
    """An open file, or memory, that one thread of its own works with.

    ``server`` is what other servers with the same file know this one by.
    """

    def __init__(self, path: str, *, schema: str, what: str, layout: int = 0) -> None:
        """Open the file, readable by this user only. Raises UsageError, which says ``what`` it was to hold.

        ``layout`` numbers what ``schema`` makes: a file with tables of another number cannot be used.
        """
        try:
            self.connection = _open(path, schema, layout)
            presence = None if path == MEMORY else _presence(path, self.connection)
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"The database of {what} {path} cannot be used: {error}") from error
        self._presence = presence
        self._path = path
        self._what = what
        self._disk_is_full = False
        self.server = "" if presence is None else presence.id
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"{what}-db")
        self._close = weakref.finalize(self, _close, self._worker, self.connection, presence)

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the database's thread, after all that was asked for before.

        Raises DatabaseFailed, which is StorageFull if that is why.
        """
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, work)
        except sqlite3.Error as error:
            log.error("The database of %s %s failed: %s", self._what, self._path, error)
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            if is_full:
                await loop.run_in_executor(self._worker, self._give_back)
            raise (StorageFull if is_full else DatabaseFailed)(
                f"The {self._what} cannot be read or changed now: the server's storage failed."
            ) from error

    def _give_back(self) -> None:
        """Shorten the log of changes, which has grown by those that failed. It stays as long as it has ever been."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def require_disk(self, size: int) -> None:
        """Raise StorageFull unless so many bytes can be stored and others still find some room.

        Logs a warning when the disk is found full. On the database's thread.
        """
        was_full, self._disk_is_full = self._disk_is_full, not self._disk_has_room(size)
        if not self._disk_is_full:
            return
        if not was_full:
            log.warning("There is no room on the disk for %s in %s; new ones are not stored.", self._what, self._path)
        raise StorageFull(f"The server has no room on its disk for {self._what}.")

    def _disk_has_room(self, size: int) -> bool:
        if self._path == MEMORY:
            return True
        return shutil.disk_usage(Path(self._path).parent).free > 2 * size + _SPARE_BYTES  # a change is written twice

    def is_alive(self, server: str) -> bool:
        """Return whether the server that goes by this name still runs."""
        return server == self.server or (self._presence is not None and self._presence.is_alive(server))

    def close(self) -> None:
        """Finish what was begun and close the file. Safe to call more than once."""
        self._close()
        self._worker.shutdown()


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Make what is done within one change that no other process comes between; an exception undoes it.

    Within another one it is a part of that.
    """
    if db.in_transaction:
        yield
        return
    with db:
        db.execute("BEGIN IMMEDIATE")
        yield


def _open(path: str, schema: str, layout: int) -> sqlite3.Connection:
    if path != MEMORY:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.chmod(path, 0o600)
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        has_tables = db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None  # before its number is read
        (found,) = db.execute("PRAGMA user_version").fetchone()
        if found != layout:
            if has_tables:
                raise sqlite3.DatabaseError("another version of this program made it")
            schema = f"BEGIN IMMEDIATE; {schema}; PRAGMA user_version = {layout}; COMMIT"
        db.executescript(schema)
        with contextlib.suppress(sqlite3.Error):  # on a full disk, where reading goes on
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that a change that fails leaves nothing to be written
    except BaseException:
        db.close()
        raise
    return db


def _presence(path: str, db: sqlite3.Connection) -> Presence:
    try:
        return Presence(f"{path}.servers")
    except BaseException:
        db.close()
        raise


def _close(worker: ThreadPoolExecutor, db: sqlite3.Connection, presence: Presence | None) -> None:
    """Close the file after all that is queued. Never waits: this may run on any thread, the worker itself included."""
    try:
        worker.submit(db.close)
    except RuntimeError:  # the interpreter is on its way out and starts no work
        db.close()
    worker.shutdown(wait=False)
    if presence is not None:
        presence.leave()
