"""The thread that writes parts of states to a folder, at its own pace."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import names
from .folder import Folder
from .part_file import StoredPart, encode

log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 512 * 2**20
"""Most memory that parts take while they wait to be written."""
MAX_WAITING_JOBS = 1024
CLOSE_S = 5.0
"""How long the end of a process waits for what is not written yet."""


@dataclass(frozen=True, slots=True)
class _Job:
    chain: Sequence[str]
    parts: Sequence[StoredPart]
    nbytes: int
    clears: int
    """How many times everything had been cleared when it came."""


class Writer:
    """Takes parts from the engine thread and never makes it wait: what there is no room for is not written."""

    def __init__(self, folder: Folder, identity: str) -> None:
        self._folder = folder
        self._identity = identity
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._waiting_bytes = self._waiting_jobs = 0
        self._clears = self._cleared = 0  # asked for, by the engine thread; and the last that was done, by this one
        self._has_warned = False
        self.refused = 0
        """Parts that were not written, for whatever reason."""
        self._thread = threading.Thread(target=self._run, name="prefix cache writer", daemon=True)
        self._thread.start()
        self._queue.put(self._count)

    @property
    def room(self) -> int:
        """Bytes that may still wait to be written."""
        with self._lock:
            return MAX_WAITING_BYTES - self._waiting_bytes if self._waiting_jobs < MAX_WAITING_JOBS else 0

    @property
    def is_clearing(self) -> bool:
        """Whether files may be there that the last ``clear`` was to remove. Any thread."""
        return self._cleared != self._clears

    def knows(self, name: str) -> bool:
        """Return whether a file is there, or will be, as far as is known."""
        return name in self._known

    def learn(self, found: Sequence[str]) -> None:
        """Hear that files are there, which were found since the last ``clear``."""
        self._known.update(found)

    def store(self, chain: Sequence[str], parts: Sequence[StoredPart]) -> None:
        """Write ``parts``, and note that all of ``chain`` is used, from the first to the last built on it."""
        nbytes = sum(len(tensor.data) for part in parts for tensor in part.tensors.values())
        job = _Job(chain, parts, nbytes, self._clears)
        with self._lock:
            self._waiting_bytes += nbytes
            self._waiting_jobs += 1
        self._known.update(part.name for part in parts)
        self._queue.put(lambda: self._write(job))

    def delete(self, name: str) -> None:
        """Remove a file that is of no use. Any thread."""
        self._known.discard(name)
        self._queue.put(lambda: self._folder.delete(name))

    def clear(self, model: str) -> None:
        """Remove all files of a model; what waits to be written is dropped. Until then it ``is_clearing``.

        If a file cannot be removed, that is warned of, and it stays so until a later call succeeds.
        """
        self._clears = number = self._clears + 1
        self._known.clear()
        self._queue.put(lambda: self._clear(model, number))

    def close(self) -> None:
        """Write what waits, but not for long. No call follows."""
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    # -- the writer's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task()
            except Exception as error:
                self._warn(error)
            del task  # what it wrote need not wait for the next one in memory

    def _write(self, job: _Job) -> None:
        try:
            for number, part in enumerate(job.parts):
                if job.clears != self._clears:
                    return
                try:
                    is_stored = self._folder.write(part.name, encode(part, self._identity))
                except OSError as error:
                    self._warn(error)
                    is_stored = False
                if not is_stored:
                    self._refuse([each.name for each in job.parts[number:]])
                    break
            gone = self._folder.touch(job.chain)
            if job.clears == self._clears:
                self._known.difference_update(gone)
        finally:
            with self._lock:
                self._waiting_bytes -= job.nbytes
                self._waiting_jobs -= 1

    def _refuse(self, refused: Sequence[str]) -> None:
        self.refused += len(refused)
        self._known.difference_update(refused)

    def _clear(self, model: str, number: int) -> None:
        try:
            self._remove_all(model)
        except OSError as error:
            log.warning(
                "States of the prefix cache in %s cannot be removed: %s. This process reads none from there until they "
                "are; the next one will.",
                self._folder.path,
                error,
            )
        else:
            self._cleared = number
        self._count()

    def _remove_all(self, model: str) -> None:
        """Remove the files of a model that can be removed. Raises OSError if there are others, or none can be seen."""
        failure: OSError | None = None
        for name in self._folder.names():
            about = names.parse(name)
            if about is not None and about.model == model:
                try:
                    self._folder.delete(name)
                except OSError as error:
                    failure = error
        if failure is not None:
            raise failure

    def _count(self) -> None:
        self._folder.count()

    def _warn(self, error: Exception) -> None:
        """Say it once: a full disk stays full."""
        log.debug("Writing states failed", exc_info=error)
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "States of the prefix cache cannot be kept in %s: %s. Requests are served without; "
                "it is not said again.",
                self._folder.path,
                error,
            )
