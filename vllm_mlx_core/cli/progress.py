"""Progress of a start on standard error: a bar on a terminal, one plain line per phase elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TextIO

from vllm_mlx_core.api import Progress

if TYPE_CHECKING:
    import rich.progress


@contextmanager
def report_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Yield a ``Progress`` that shows on ``stream`` (default: standard error) until the context is left."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _Lines(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(file=stream), transient=True) as bar:
        yield _Bar(bar)


class _Lines:
    """Says once that a phase began, however often its progress is reported."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = Lock()
        self._said: set[str] = set()

    def __call__(self, what: str, fraction: float | None = None) -> None:
        with self._lock:
            if what in self._said:
                return
            self._said.add(what)
            print(_sentence(what), file=self._stream, flush=True)


class _Bar:
    """One row per phase; a phase that reports no fraction pulses until the next one begins."""

    def __init__(self, bar: rich.progress.Progress) -> None:
        self._bar = bar
        self._lock = Lock()
        self._tasks: dict[str, rich.progress.TaskID] = {}

    def __call__(self, what: str, fraction: float | None = None) -> None:
        with self._lock:
            task = self._tasks.get(what)
            if task is None:
                for earlier in self._tasks.values():
                    self._bar.update(earlier, total=1, completed=1)
                from rich.markup import escape

                task = self._tasks[what] = self._bar.add_task(escape(_sentence(what)), total=None)
            if fraction is not None:
                self._bar.update(task, total=1, completed=fraction)


def _sentence(what: str) -> str:
    return what[:1].upper() + what[1:]
