"""The thread that looks into a folder, which may be on a disk that does not answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from .lookup import Found

STUCK_S = 5.0
"""How long one look-up may take before others are not even begun."""

_Find = Callable[[], Found | None]


class Reader:
    """Does look-ups one after another. A read that never ends costs this thread, but neither requests nor the exit.

    The thread is a daemon, as those of an executor are joined at the end of the process, however long that takes.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Found | None], _Find] | None] = queue.SimpleQueue()
        self._begun: float | None = None
        threading.Thread(target=self._run, name="prefix cache reader", daemon=True).start()

    @property
    def is_stuck(self) -> bool:
        """Whether a look-up has been under way for so long that it is vain to wait behind it. Any thread."""
        begun = self._begun
        return begun is not None and time.monotonic() - begun > STUCK_S

    def submit(self, find: _Find) -> Future[Found | None]:
        """Let ``find`` be called by the thread; what it returns or raises is the future's. Any thread."""
        future: Future[Found | None] = Future()
        self._queue.put((future, find))
        return future

    def close(self) -> None:
        """Cancel what has not begun, and do not wait for what has. No call follows."""
        while not self._queue.empty():
            try:
                job = self._queue.get_nowait()
            except queue.Empty:  # the thread was quicker
                break
            if job is not None:
                job[0].cancel()
        self._queue.put(None)

    # -- the reader's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            self._do(*job)
            del job  # what it found need not wait for the next one in memory

    def _do(self, future: Future[Found | None], find: _Find) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._begun = time.monotonic()
        try:
            found = find()
        except Exception as error:
            self._begun = None
            future.set_exception(error)
        else:
            self._begun = None  # first: whoever hears of the result may submit again
            future.set_result(found)
