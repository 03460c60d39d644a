"""The batches of each owner."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from vllm_mlx_core.api import InvalidRequest, NotFound
from vllm_mlx_protocols.database import Database, transaction

from .contents import Contents
from .files import Files
from .limits import MAX_UNFINISHED_BATCHES, WINDOW_S
from .tables import Batch

_COLUMNS = ", ".join(Batch._fields)


class Order(NamedTuple):
    """What a client asks for. ``output_lifetime_s`` is how long its results are kept, None for the usual time."""

    input_file: str
    endpoint: str
    metadata: Mapping[str, str] | None
    output_lifetime_s: int | None


class Ledger:
    """The batches of one database, each seen by its owner only. Coroutines work on the database's thread."""

    def __init__(self, database: Database, files: Files, contents: Contents, *, served: str, max_age_s: float) -> None:
        self._database = database
        self._served = served
        self._db = database.connection
        self._files = files
        self._contents = contents
        self._max_age_s = max_age_s

    async def create(self, owner: str, order: Order) -> Batch:
        """Make a batch. Raises InvalidRequest if its file is not there or no input, or if too many are unfinished."""
        return await self._database.run(lambda: self._create(owner, order))

    async def get(self, owner: str, batch_id: str) -> Batch:
        """Return a batch. Raises NotFound."""
        return await self._database.run(lambda: self._find(owner, batch_id))

    async def page(self, owner: str, *, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """Return some batches, the newest first, and whether there are more. Raises InvalidRequest for ``after``."""
        return await self._database.run(lambda: self._page(owner, after, limit))

    async def cancel(self, owner: str, batch_id: str) -> Batch:
        """Begin to cancel a batch. Raises NotFound, or InvalidRequest if it has ended otherwise."""
        return await self._database.run(lambda: self._cancel(owner, batch_id))

    # -- on the database's thread ---------------------------------------------------------------------------------

    def _create(self, owner: str, order: Order) -> Batch:
        with transaction(self._db):
            self._prune()
            try:
                file = self._files.find(owner, order.input_file)
            except NotFound as error:
                raise InvalidRequest(f"input_file_id: {error.message}", param="input_file_id") from error
            if file.purpose != "batch":
                raise InvalidRequest("input_file_id: that file is no input for batches.", param="input_file_id")
            query = "SELECT count(*) FROM batches WHERE owner = ? AND ended_at IS NULL"
            (count,) = self._db.execute(query, (owner,)).fetchone()
            if count >= MAX_UNFINISHED_BATCHES:
                message = f"You have {count} unfinished batches: wait for one, or cancel it."
                raise InvalidRequest(message, code="too_many_batches")
            batch_id, now = f"batch_{secrets.token_hex(16)}", self._contents.now()
            row = {
                "id": batch_id,
                "owner": owner,
                "server": self._database.server,
                "served": self._served,
                "status": "validating",
                "endpoint": order.endpoint,
                "input_file": order.input_file,
                "output_file": self._contents.begin(owner, "batch_output", f"{batch_id}_output.jsonl"),
                "error_file": self._contents.begin(owner, "batch_output", f"{batch_id}_error.jsonl"),
                "output_lifetime_s": order.output_lifetime_s,
                "metadata": None if order.metadata is None else json.dumps(order.metadata),
                "created_at": now,
                "expires_at": now + WINDOW_S,
            }
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO batches ({columns}) VALUES ({marks})", tuple(row.values()))
        return self._find(owner, batch_id)

    def _prune(self) -> None:
        """Forget the batches that ended too long ago."""
        self._db.execute("DELETE FROM batches WHERE ended_at <= ?", (self._contents.now() - self._max_age_s,))

    def _find(self, owner: str, batch_id: str) -> Batch:
        query = f"SELECT {_COLUMNS} FROM batches WHERE id = ? AND owner = ?"
        row = self._db.execute(query, (batch_id, owner)).fetchone()
        if row is None:
            raise NotFound(f"No batch found with id '{batch_id[:100]}'.", param="batch_id")
        return Batch(*row)

    def _page(self, owner: str, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        before = 2**62
        if after is not None:
            try:
                before = self._find(owner, after).seq
            except NotFound as error:
                raise InvalidRequest("after: there is no such batch.", param="after") from error
        query = f"SELECT {_COLUMNS} FROM batches WHERE owner = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
        rows = [Batch(*row) for row in self._db.execute(query, (owner, before, limit + 1))]
        return rows[:limit], len(rows) > limit

    def _cancel(self, owner: str, batch_id: str) -> Batch:
        with transaction(self._db):
            batch = self._find(owner, batch_id)
            if batch.status in ("completed", "failed", "expired"):
                raise InvalidRequest(f"A batch that is {batch.status} cannot be cancelled.", param="batch_id")
            self._db.execute(
                "UPDATE batches SET status = 'cancelling', outcome = 'cancelled', cancelling_at = ? "
                "WHERE id = ? AND status IN ('validating', 'in_progress')",
                (self._contents.now(), batch_id),
            )
        return self._find(owner, batch_id)
