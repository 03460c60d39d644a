"""The files of each owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import BinaryIO

from vllm_mlx_core.api import InvalidRequest, NotFound, PayloadTooLarge
from vllm_mlx_protocols.database import Database, StorageFull, transaction

from .contents import Contents
from .limits import MAX_FILES, PIECE_BYTES
from .tables import BEING_READ, File

_COLUMNS = ", ".join(File._fields)
_SEEN = f"owner = :owner AND is_complete AND (expires_at > :now OR id IN ({BEING_READ}))"


class Files:
    """The files of one database, each seen by its owner only. All coroutines work on the database's thread.

    A file is gone when its time is over, unless a batch still reads it.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._db = database.connection
        self._contents = contents

    async def add(self, owner: str, filename: str, source: BinaryIO, size: int, lifetime_s: int | None) -> File:
        """Store an upload. Raises PayloadTooLarge if there is no room, InvalidRequest if there are too many."""
        try:
            return await self._database.run(lambda: self._add(owner, filename, source, size, lifetime_s))
        except StorageFull as error:
            raise _no_room() from error

    async def get(self, owner: str, file_id: str) -> File:
        """Return a file. Raises NotFound."""
        return await self._database.run(lambda: self.find(owner, file_id))

    async def page(
        self, owner: str, *, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> tuple[list[File], bool]:
        """Return some files, and whether there are more. Raises InvalidRequest if there is no file ``after``."""
        return await self._database.run(lambda: self._page(owner, purpose, after, limit, newest_first))

    async def delete(self, owner: str, file_id: str) -> None:
        """Forget a file. Raises NotFound, or InvalidRequest if a batch still reads it."""
        await self._database.run(lambda: self._delete(owner, file_id))

    async def content(self, file: File) -> AsyncIterator[bytes]:
        """Iterate over the content, some pieces at a time. Raises NotFound if the file is deleted meanwhile."""
        after, left = -1, file.bytes
        while left:
            data, last = await self._database.run(partial(self._contents.next_pieces, file.id, after))
            if last is None:
                raise NotFound("The file was deleted while it was read.", param="id")
            yield data
            after, left = last, left - len(data)

    # -- on the database's thread ---------------------------------------------------------------------------------

    def find(self, owner: str, file_id: str) -> File:
        """Return a file. Raises NotFound."""
        query = f"SELECT {_COLUMNS} FROM files WHERE id = :id AND {_SEEN}"
        row = self._db.execute(query, {"id": file_id, "owner": owner, "now": self._contents.now()}).fetchone()
        if row is None:
            raise NotFound(f"No such File object: {file_id[:100]}", param="id")
        return File(*row)

    def _add(self, owner: str, filename: str, source: BinaryIO, size: int, lifetime_s: int | None) -> File:
        with transaction(self._db):
            self._contents.prune()
            (count,) = self._db.execute("SELECT count(*) FROM files WHERE owner = ?", (owner,)).fetchone()
            if count >= MAX_FILES:
                raise InvalidRequest(f"You have {MAX_FILES:,} files: delete some first.", code="too_many_files")
            if not self._contents.has_room(size):
                raise PayloadTooLarge(
                    f"The server keeps at most {self._contents.max_bytes:,} bytes of files, and there is no room for "
                    f"{size:,} more. Delete files that are not needed any more.",
                    param="file",
                    code="storage_full",
                )
            self._database.require_disk(size)
            file_id = self._contents.add(owner, "batch", filename, size, lifetime_s)
            pieces = iter(lambda: source.read(PIECE_BYTES), b"")
            rows = ((file_id, number, piece) for number, piece in enumerate(pieces))
            self._db.executemany("INSERT INTO pieces VALUES (?, ?, ?)", rows)
        return self.find(owner, file_id)

    def _page(
        self, owner: str, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> tuple[list[File], bool]:
        direction, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
        query = f"SELECT {_COLUMNS} FROM files WHERE {_SEEN}"
        values = {"owner": owner, "now": self._contents.now(), "purpose": purpose, "after": after}
        if purpose is not None:
            query += " AND purpose = :purpose"
        if after is not None:
            self._check_cursor(owner, after)
            query += f" AND (created_at, seq) {beyond} (SELECT created_at, seq FROM files WHERE id = :after)"
        query += f" ORDER BY created_at {direction}, seq {direction} LIMIT {limit + 1}"
        rows = [File(*row) for row in self._db.execute(query, values)]
        return rows[:limit], len(rows) > limit

    def _check_cursor(self, owner: str, after: str) -> None:
        try:
            self.find(owner, after)
        except NotFound as error:
            raise InvalidRequest("after: there is no such file.", param="after") from error

    def _delete(self, owner: str, file_id: str) -> None:
        with transaction(self._db):
            self.find(owner, file_id)
            query = "SELECT id FROM batches WHERE input_file = ? AND ended_at IS NULL"
            batch = self._db.execute(query, (file_id,)).fetchone()
            if batch is not None:
                message = f"The batch {batch[0]} still reads this file: cancel it first, or wait for its end."
                raise InvalidRequest(message, param="id", code="file_in_use")
            self._db.execute("DELETE FROM files WHERE id = ?", (file_id,))


def _no_room() -> PayloadTooLarge:
    return PayloadTooLarge("The server's disk has no room for this file.", param="file", code="storage_full")
