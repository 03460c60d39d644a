"""Stored responses, in SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vllm_mlx_core.api import UsageError

from .presence import Presence

MEMORY = ":memory:"
T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, status TEXT NOT NULL,
    used REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL, input TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS responses_used ON responses (used, size);
CREATE TABLE IF NOT EXISTS items (
    id TEXT NOT NULL, response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE, PRIMARY KEY (id, response)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_response ON items (response);
"""
_CHAIN = """
WITH RECURSIVE chain (id, previous, body, input, depth) AS (
    SELECT id, previous, body, input, 0 FROM responses WHERE id = :id AND owner = :owner
    UNION ALL
    SELECT r.id, r.previous, r.body, r.input, depth + 1
    FROM responses r JOIN chain ON r.id = chain.previous WHERE r.owner = :owner
)
SELECT id, previous, body, input FROM chain ORDER BY depth DESC
"""


class Stored(NamedTuple):
    """A response and the items of its request."""

    response: dict[str, Any]
    input: list[dict[str, Any]]


class Store:
    """Responses by id, each seen by its owner only. What was used longest ago goes first when there is too much.

    A response counts as used when it is stored and when one that follows it is made. All methods but the constructor
    and ``close`` are coroutines whose work runs on a thread of its own, in order.
    """

    def __init__(
        self,
        path: str,
        *,
        max_age_s: float,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the file, readable by this user only. Raises UsageError if it cannot be used."""
        self._max_age_s = max_age_s
        self._max_bytes = max_bytes
        self._clock = clock
        self._db = _open(path)
        presence = None if path == MEMORY else Presence(f"{path}.lock")
        self._is_first = presence is None or presence.is_first
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="responses-db")
        self._close = weakref.finalize(self, _close, self._worker, self._db, presence)

    def close(self) -> None:
        """Finish what was begun and close the file. Safe to call more than once."""
        self._close()
        self._worker.shutdown()

    async def put(self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]]) -> None:
        """Store a response, or replace it. Neither it nor its items may be changed afterwards."""
        await self._run(lambda: self._put(owner, response, input))

    async def get(self, owner: str, response_id: str) -> Stored | None:
        """Return a response of this owner."""
        found = await self._run(lambda: [_stored(*row) for row in self._rows(_SELECT, response_id, owner)])
        return found[0] if found else None

    async def chain(self, owner: str, response_id: str) -> list[Stored] | None:
        """Return a response and all that it follows, the oldest first; None if one is missing. Marks them as used."""
        return await self._run(lambda: self._chain(owner, response_id))

    async def item(self, owner: str, item_id: str) -> dict[str, Any] | None:
        """Return an item of any response of this owner."""
        found = await self._run(lambda: [_stored(*row) for row in self._rows(_SELECT_ITEM, item_id, owner)])
        items = (item for each in found for item in (*each.response["output"], *each.input))
        return next((item for item in items if item["id"] == item_id), None)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Forget a response; return whether there was one."""
        return await self._run(lambda: self._delete(owner, response_id))

    async def fail_unfinished(self, message: str) -> None:
        """Mark what an earlier process left unfinished as failed, unless another server uses the file and makes it."""
        if self._is_first:
            await self._run(lambda: self._fail_unfinished(message))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    def _put(self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]]) -> None:
        body, given = _dumps(response), _dumps(list(input))
        ids = {item["id"] for item in (*input, *response["output"])}
        size = len(body.encode()) + len(given.encode())
        row = (response["id"], owner, response["previous_response_id"], response["status"], self._clock(), size)
        with self._db:
            self._db.execute("DELETE FROM responses WHERE id = ?", (response["id"],))
            self._db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, body, given))
            self._db.executemany("INSERT INTO items VALUES (?, ?)", [(each, response["id"]) for each in ids])
            self._prune()

    def _prune(self) -> None:
        self._db.execute("DELETE FROM responses WHERE used < ?", (self._clock() - self._max_age_s,))
        (total,) = self._db.execute("SELECT coalesce(sum(size), 0) FROM responses").fetchone()
        while total > self._max_bytes:
            oldest, size = self._db.execute("SELECT id, size FROM responses ORDER BY used LIMIT 1").fetchone()
            self._db.execute("DELETE FROM responses WHERE id = ?", (oldest,))
            total -= size

    def _chain(self, owner: str, response_id: str) -> list[Stored] | None:
        rows = self._db.execute(_CHAIN, {"id": response_id, "owner": owner}).fetchall()
        with self._db:
            now = self._clock()
            self._db.executemany("UPDATE responses SET used = ? WHERE id = ?", [(now, row[0]) for row in rows])
        if not rows or rows[0][1] is not None:
            return None
        return [_stored(body, given) for _, _, body, given in rows]

    def _delete(self, owner: str, response_id: str) -> bool:
        with self._db:
            done = self._db.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (response_id, owner))
        return done.rowcount > 0

    def _fail_unfinished(self, message: str) -> None:
        with self._db:
            for response_id, text in self._rows("SELECT id, body FROM responses WHERE status = 'in_progress'"):
                body = {**json.loads(text), "status": "failed", "error": {"code": "server_error", "message": message}}
                self._db.execute(
                    "UPDATE responses SET status = 'failed', body = ? WHERE id = ?", (_dumps(body), response_id)
                )


_SELECT = "SELECT body, input FROM responses WHERE id = ? AND owner = ?"
_SELECT_ITEM = (
    "SELECT r.body, r.input FROM items JOIN responses r ON r.id = items.response "
    "WHERE items.id = ? AND r.owner = ? ORDER BY r.used DESC LIMIT 1"
)


def _open(path: str) -> sqlite3.Connection:
    try:
        if path != MEMORY:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(path, 0o600)
        db = sqlite3.connect(path, check_same_thread=False)
        try:
            for pragma in ("foreign_keys = ON", "secure_delete = ON", "journal_mode = WAL", "synchronous = NORMAL"):
                db.execute(f"PRAGMA {pragma}")
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        return db
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"The database of responses {path} cannot be used: {error}") from error


def _close(worker: ThreadPoolExecutor, db: sqlite3.Connection, presence: Presence | None) -> None:
    """Close the file after all that is queued. Never waits: this may run on any thread, the worker itself included."""
    try:
        worker.submit(db.close)
    except RuntimeError:  # the interpreter is on its way out and starts no work
        db.close()
    worker.shutdown(wait=False)
    if presence is not None:
        presence.leave()


def _stored(body: str, given: str) -> Stored:
    return Stored(json.loads(body), json.loads(given))


def _dumps(value: Any) -> str:
    """Return JSON without any surrogate, which SQLite could not write: what is lone stays escaped."""
    return json.dumps(value)
