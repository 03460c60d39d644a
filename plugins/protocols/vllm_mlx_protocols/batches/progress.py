"""What is still to do for batches, and what has been done.

Every change is one transaction, so that a process may end at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from vllm_mlx_protocols.database import Database, transaction

from .answers import Answer, not_run
from .contents import Contents
from .limits import PIECE_BYTES
from .lines import Fault, Line, LineReader
from .objects import errors_json
from .tables import Batch, Task

log = logging.getLogger(__name__)

_COLUMNS = ", ".join(Batch._fields)
_TASKS_AT_ONCE = 200
"""Lines that a batch did not come to, and that are written into its error file in one go."""
_STORAGE_FULL = Fault("storage_full", "The server has no room for more results. Those that it has are kept.")


class Progress:
    """The batches of one database, for the server that works on them. Coroutines work on the database's thread.

    A batch is worked on by the server in which it was made. When that is gone, it goes to the next one that claims it
    and serves the same models, which ``served`` names. What needs no model any more goes to any.
    """

    def __init__(self, database: Database, contents: Contents, *, served: str, clock: Callable[[], float]) -> None:
        self._database = database
        self._served = served
        self._db = database.connection
        self._contents = contents
        self.clock = clock
        self._left_alone: set[str] = set()

    async def unfinished(self) -> list[str]:
        """Return the ids of all batches that have not ended, the oldest first."""
        query = "SELECT id FROM batches WHERE ended_at IS NULL ORDER BY seq"
        return await self._database.run(lambda: [row[0] for row in self._db.execute(query)])

    async def claim(self, batch_id: str) -> Batch | None:
        """Return a batch if it has not ended and is this server's to work on; it is from now on if its own is gone.

        Logs a warning, once, if only another server could answer its lines.
        """
        return await self._database.run(lambda: self._claim(batch_id))

    async def index(self, batch: Batch) -> None:
        """Read the input file: the batch is in progress then, or fails."""
        reader = LineReader(batch.endpoint)
        await self._database.run(lambda: self._begin_index(batch))
        start = 0
        while await self._database.run(partial(self._index_piece, batch, reader, start)):
            start += PIECE_BYTES
        await self._database.run(lambda: self._end_index(batch, reader))

    async def next_task(self, batch_id: str, after: int) -> Task | None:
        """Return the first line after number ``after`` that has no result, if the batch is still in progress."""
        return await self._database.run(lambda: self._next_task(batch_id, after))

    async def line(self, batch: Batch, task: Task) -> bytes | None:
        """Return a line as it is in the file, if it is still to be answered."""
        return await self._database.run(lambda: self._line(batch, task))

    async def record(self, batch: Batch, task: Task, answer: Answer) -> None:
        """Keep the result of a line, unless it has one; without room for it the batch fails."""
        await self._database.run(lambda: self._record(batch, task, answer))

    async def settle(self, batch: Batch) -> None:
        """Begin to end a batch in progress, if no line is left to do or its time is over."""
        await self._database.run(lambda: self._settle(batch))

    async def conclude(self, batch: Batch) -> None:
        """Do the next piece of work for the end of a batch that is finalizing or cancelling."""
        await self._database.run(lambda: self._conclude(batch))

    # -- on the database's thread ---------------------------------------------------------------------------------

    def _claim(self, batch_id: str) -> Batch | None:
        query = f"SELECT {_COLUMNS} FROM batches WHERE id = ? AND ended_at IS NULL"
        row = self._db.execute(query, (batch_id,)).fetchone()
        batch = None if row is None else Batch(*row)
        mine = self._database.server
        if batch is None or batch.server == mine:
            return batch
        if self._database.is_alive(batch.server):
            return None
        has_lines = batch.status in ("validating", "in_progress") and self.clock() < batch.expires_at
        if has_lines and batch.served != self._served:
            if batch.id not in self._left_alone:
                self._left_alone.add(batch.id)
                log.warning("The batch %s waits for a server of %s.", batch.id, batch.served)
            return None
        with transaction(self._db):  # of several that see this, one gets it
            query = "UPDATE batches SET server = ? WHERE id = ? AND server = ?"
            taken = self._db.execute(query, (mine, batch_id, batch.server)).rowcount
        return batch._replace(server=mine) if taken else None

    def _begin_index(self, batch: Batch) -> None:
        with transaction(self._db):
            self._db.execute("DELETE FROM tasks WHERE batch = ?", (batch.id,))

    def _index_piece(self, batch: Batch, reader: LineReader, start: int) -> bool:
        """Find the lines that end in a piece; return whether there is another."""
        piece = self._contents.read(batch.input_file, start, PIECE_BYTES)
        with transaction(self._db):
            self._add_tasks(batch, reader.feed(piece))
        return len(piece) == PIECE_BYTES and not reader.is_over

    def _end_index(self, batch: Batch, reader: LineReader) -> None:
        with transaction(self._db):
            self._add_tasks(batch, reader.finish())
            if reader.faults:
                query = "UPDATE batches SET errors = ? WHERE id = ? AND status = 'validating'"
                if self._db.execute(query, (errors_json(reader.faults), batch.id)).rowcount:
                    self._end(batch, "failed")
                return
            self._db.execute(
                "UPDATE batches SET status = 'in_progress', in_progress_at = ?, model = ?, "
                "total = (SELECT count(*) FROM tasks WHERE batch = batches.id) WHERE id = ? AND status = 'validating'",
                (self._contents.now(), reader.model, batch.id),
            )

    def _add_tasks(self, batch: Batch, lines: Iterable[Line]) -> None:
        rows = (Task(batch.id, *line) for line in lines)
        self._db.executemany("INSERT INTO tasks VALUES (?, ?, ?, ?, ?)", rows)

    def _next_task(self, batch_id: str, after: int) -> Task | None:
        row = self._db.execute(
            "SELECT tasks.* FROM tasks JOIN batches ON batches.id = tasks.batch AND status = 'in_progress' "
            "WHERE batch = ? AND number > ? ORDER BY number LIMIT 1",
            (batch_id, after),
        ).fetchone()
        return None if row is None else Task(*row)

    def _line(self, batch: Batch, task: Task) -> bytes | None:
        if self._next_task(batch.id, task.number - 1) != task:
            return None
        return self._contents.read(batch.input_file, task.start, task.size)

    def _record(self, batch: Batch, task: Task, answer: Answer) -> None:
        with transaction(self._db):
            done = self._db.execute("DELETE FROM tasks WHERE batch = ? AND number = ?", (batch.id, task.number))
            if not done.rowcount:
                return  # it was cancelled meanwhile
            file_id = batch.error_file if answer.has_failed else batch.output_file
            if not self._contents.append(file_id, task.number, answer.line):
                self._begin_end(batch, "failed", [_STORAGE_FULL])
                return
            usage = answer.usage
            self._db.execute(
                f"UPDATE batches SET {'failed = failed + 1' if answer.has_failed else 'completed = completed + 1'}, "
                "input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?, "
                "output_tokens = output_tokens + ?, reasoning_tokens = reasoning_tokens + ? WHERE id = ?",
                (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens, batch.id),
            )

    def _settle(self, batch: Batch) -> None:
        with transaction(self._db):
            (left,) = self._db.execute("SELECT count(*) FROM tasks WHERE batch = ?", (batch.id,)).fetchone()
            if not left:
                self._begin_end(batch, "completed")
            elif self.clock() >= batch.expires_at:
                self._begin_end(batch, "expired")

    def _begin_end(self, batch: Batch, outcome: str, faults: Sequence[Fault] = ()) -> None:
        """Make a batch in progress finalizing. Its end is known then, whatever happens to this process."""
        self._db.execute(
            "UPDATE batches SET status = 'finalizing', finalizing_at = ?, outcome = ?, errors = ? "
            "WHERE id = ? AND status = 'in_progress'",
            (self._contents.now(), outcome, errors_json(faults) if faults else None, batch.id),
        )

    def _conclude(self, batch: Batch) -> None:
        assert batch.outcome is not None
        with transaction(self._db):
            if batch.outcome != "expired" or not self._give_up_some(batch):
                self._end(batch, batch.outcome)

    def _give_up_some(self, batch: Batch) -> bool:
        """Say of some lines that time was over before they were done; return whether there were any."""
        query = "SELECT * FROM tasks WHERE batch = ? ORDER BY number LIMIT ?"
        tasks = [Task(*row) for row in self._db.execute(query, (batch.id, _TASKS_AT_ONCE))]
        for task in tasks:
            self._record(batch, task, not_run(task.custom_id))
        return bool(tasks)

    def _end(self, batch: Batch, outcome: str) -> None:
        self._db.execute("DELETE FROM tasks WHERE batch = ?", (batch.id,))
        for file_id in (batch.output_file, batch.error_file):
            self._contents.publish(file_id, batch.output_lifetime_s)
        now = self._contents.now()
        self._db.execute(
            f"UPDATE batches SET status = ?, {outcome}_at = ?, ended_at = ? WHERE id = ?", (outcome, now, now, batch.id)
        )
