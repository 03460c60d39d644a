"""Stored responses, in SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from vllm_mlx_protocols.database import Database, transaction

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, status TEXT NOT NULL,
    used REAL NOT NULL, size INTEGER NOT NULL, body TEXT NOT NULL, input TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS responses_used ON responses (used, size);
CREATE INDEX IF NOT EXISTS responses_status ON responses (status);
CREATE TABLE IF NOT EXISTS running (
    id TEXT PRIMARY KEY REFERENCES responses (id) ON DELETE CASCADE, server TEXT NOT NULL
) WITHOUT ROWID;
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
        self._database = Database(path, schema=_SCHEMA, what="responses")
        self._db = self._database.connection

    def close(self) -> None:
        """Finish what was begun and close the file. Safe to call more than once."""
        self._database.close()

    async def put(self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]]) -> bool:
        """Store a response; return False if it is larger than all that may be kept. Raises StorageFull.

        Neither it nor its items may be changed afterwards. One in progress is this server's to finish.
        """
        return await self._database.run(lambda: self._put(owner, response, input, is_new=True))

    async def finish(self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]]) -> bool:
        """Replace a response that was in progress, unless it has been deleted since; return whether there is room."""
        return await self._database.run(lambda: self._finish(owner, response, input))

    async def get(self, owner: str, response_id: str) -> Stored | None:
        """Return a response of this owner."""
        return await self._database.run(lambda: self._get(owner, response_id))

    async def chain(self, owner: str, response_id: str) -> list[Stored] | None:
        """Return a response and all that it follows, the oldest first; None if one is missing. Marks them as used."""
        return await self._database.run(lambda: self._chain(owner, response_id))

    async def item(self, owner: str, item_id: str) -> dict[str, Any] | None:
        """Return an item of any response of this owner."""
        found = await self._database.run(lambda: [_stored(*row) for row in self._rows(_SELECT_ITEM, item_id, owner)])
        items = (item for each in found for item in (*each.response["output"], *each.input))
        return next((item for item in items if item["id"] == item_id), None)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Forget a response; return whether there was one."""
        return await self._database.run(lambda: self._delete(owner, response_id))

    async def fail_abandoned(self) -> None:
        """Mark what servers left unfinished that are gone as failed."""
        await self._database.run(self._fail_abandoned)

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self._db.execute(query, values).fetchall()

    def _get(self, owner: str, response_id: str) -> Stored | None:
        found = [_stored(*row) for row in self._rows(_SELECT, response_id, owner)]
        if found and found[0].response["status"] == _IN_PROGRESS and self._fail_abandoned():
            return self._get(owner, response_id)
        return found[0] if found else None

    def _put(
        self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]], *, is_new: bool = False
    ) -> bool:
        body, given = _dumps(response), _dumps(list(input))
        ids = {item["id"] for item in (*input, *response["output"])}
        size = len(body.encode()) + len(given.encode())
        row = (response["id"], owner, response["previous_response_id"], response["status"], self._clock(), size)
        if size > self._max_bytes:
            return False  # before it drives out all others
        if is_new:
            self._database.require_disk(size)
        with transaction(self._db):
            self._db.execute("DELETE FROM responses WHERE id = ?", (response["id"],))
            self._db.execute("INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, body, given))
            self._db.executemany("INSERT INTO items VALUES (?, ?)", [(each, response["id"]) for each in ids])
            if response["status"] == _IN_PROGRESS:
                self._db.execute("INSERT INTO running VALUES (?, ?)", (response["id"], self._database.server))
            self._prune()
        return True

    def _finish(self, owner: str, response: dict[str, Any], input: Sequence[dict[str, Any]]) -> bool:
        with transaction(self._db):
            return not self._rows(_SELECT, response["id"], owner) or self._put(owner, response, input)

    def _prune(self) -> None:
        self._db.execute("DELETE FROM responses WHERE used < ?", (self._clock() - self._max_age_s,))
        (total,) = self._db.execute("SELECT coalesce(sum(size), 0) FROM responses").fetchone()
        while total > self._max_bytes:
            oldest, size = self._db.execute("SELECT id, size FROM responses ORDER BY used LIMIT 1").fetchone()
            self._db.execute("DELETE FROM responses WHERE id = ?", (oldest,))
            total -= size

    def _chain(self, owner: str, response_id: str) -> list[Stored] | None:
        rows = self._db.execute(_CHAIN, {"id": response_id, "owner": owner}).fetchall()
        now = self._clock()
        with suppress(sqlite3.Error), self._db:  # on a full disk a conversation still goes on
            self._db.executemany("UPDATE responses SET used = ? WHERE id = ?", [(now, row[0]) for row in rows])
        if not rows or rows[0][1] is not None:
            return None
        return [_stored(body, given) for _, _, body, given in rows]

    def _delete(self, owner: str, response_id: str) -> bool:
        with self._db:
            done = self._db.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (response_id, owner))
        return done.rowcount > 0

    def _fail_abandoned(self) -> bool:
        """Return whether there was anything to mark."""
        abandoned = [
            row[:2] for row in self._rows(_UNFINISHED) if row[2] is None or not self._database.is_alive(row[2])
        ]
        with transaction(self._db):
            for response_id, text in abandoned:
                error = {"code": "server_error", "message": "The server that made it was stopped."}
                body = _dumps({**json.loads(text), "status": "failed", "error": error})
                self._db.execute("UPDATE responses SET status = 'failed', body = ? WHERE id = ?", (body, response_id))
                self._db.execute("DELETE FROM running WHERE id = ?", (response_id,))
        return bool(abandoned)


_IN_PROGRESS = "in_progress"
_SELECT = "SELECT body, input FROM responses WHERE id = ? AND owner = ?"
_UNFINISHED = (
    "SELECT r.id, r.body, running.server FROM responses r LEFT JOIN running ON running.id = r.id "
    "WHERE r.status = 'in_progress'"
)
_SELECT_ITEM = (
    "SELECT r.body, r.input FROM items JOIN responses r ON r.id = items.response "
    "WHERE items.id = ? AND r.owner = ? ORDER BY r.used DESC LIMIT 1"
)


def _stored(body: str, given: str) -> Stored:
    return Stored(json.loads(body), json.loads(given))


def _dumps(value: Any) -> str:
    """Return JSON without any surrogate, which SQLite could not write: what is lone stays escaped."""
    return json.dumps(value)
