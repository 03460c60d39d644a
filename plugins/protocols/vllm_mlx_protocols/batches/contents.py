"""The bytes of files, in pieces of rows, and how many of them there may be."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from vllm_mlx_protocols.database import Database, transaction

from .limits import PIECE_BYTES
from .tables import BEING_READ, File


class Contents:
    """Makes files and fills them. Nothing here asks whose they are. On the database's thread only."""

    def __init__(self, database: Database, *, max_age_s: float, max_bytes: int, clock: Callable[[], float]) -> None:
        self._db = database.connection
        self._max_age_s = max_age_s
        self.max_bytes = max_bytes
        self._clock = clock

    def now(self) -> int:
        """Return the Unix time in seconds."""
        return int(self._clock())

    def add(self, owner: str, purpose: str, filename: str, size: int, lifetime_s: int | None) -> str:
        """Make a file of this size, which is given its pieces at once; return its id. Mutates."""
        return self._insert(owner, purpose, filename, size, self._expiry(lifetime_s), is_complete=True)

    def begin(self, owner: str, purpose: str, filename: str) -> str:
        """Make a file that grows, and is seen when it is published; return its id. Mutates."""
        return self._insert(owner, purpose, filename, 0, None, is_complete=False)

    def append(self, file_id: str, number: int, data: bytes) -> bool:
        """Add a piece to a file that is being filled; return False if there is no room for it. Mutates."""
        if not self.has_room(len(data)):
            return False
        self._db.execute("INSERT INTO pieces VALUES (?, ?, ?)", (file_id, number, data))
        self._db.execute("UPDATE files SET bytes = bytes + ? WHERE id = ?", (len(data), file_id))
        return True

    def publish(self, file_id: str, lifetime_s: int | None) -> None:
        """Let a file be seen, or delete it if it is empty. Mutates."""
        self._db.execute("DELETE FROM files WHERE id = ? AND bytes = 0", (file_id,))
        self._db.execute(
            "UPDATE files SET is_complete = 1, created_at = ?, expires_at = ? WHERE id = ?",
            (self.now(), self._expiry(lifetime_s), file_id),
        )

    def read(self, file_id: str, start: int, size: int) -> bytes:
        """Return a part of an upload; shorter where the file ends."""
        first = start // PIECE_BYTES
        rows = self._db.execute(
            "SELECT data FROM pieces WHERE file = ? AND number BETWEEN ? AND ? ORDER BY number",
            (file_id, first, (start + size - 1) // PIECE_BYTES),
        )
        begin = start - first * PIECE_BYTES
        return b"".join(data for (data,) in rows)[begin : begin + size]

    def next_pieces(self, file_id: str, after: int) -> tuple[bytes, int | None]:
        """Return some pieces after number ``after`` and the number of the last; None if there are none."""
        query = "SELECT number, data FROM pieces WHERE file = ? AND number > ? ORDER BY number"
        pieces: list[bytes] = []
        last, size = None, 0
        for number, data in self._db.execute(query, (file_id, after)):
            pieces.append(data)
            last, size = number, size + len(data)
            if size >= PIECE_BYTES:
                break
        return b"".join(pieces), last

    def prune(self) -> None:
        """Forget what has lived its time. Mutates."""
        with transaction(self._db):
            self._db.execute(f"DELETE FROM files WHERE expires_at <= ? AND id NOT IN ({BEING_READ})", (self.now(),))

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more may be kept. What has lived its time goes first. Mutates."""
        self.prune()
        (total,) = self._db.execute("SELECT coalesce(sum(bytes), 0) FROM files").fetchone()
        return bool(total + size <= self.max_bytes)

    def _insert(
        self, owner: str, purpose: str, filename: str, size: int, expires_at: int | None, *, is_complete: bool
    ) -> str:
        file_id = f"file-{secrets.token_hex(16)}"
        row = (file_id, owner, purpose, filename, size, self.now(), expires_at, is_complete)
        columns = ", ".join(File._fields[1:])
        self._db.execute(f"INSERT INTO files ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        return file_id

    def _expiry(self, lifetime_s: int | None) -> int:
        return self.now() + int(self._max_age_s if lifetime_s is None else min(lifetime_s, self._max_age_s))
