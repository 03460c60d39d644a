"""The hub client's progress bars, turned into reports of one fraction. They are drawn by whoever is reported to."""

from __future__ import annotations

import time
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from vllm_mlx_core.api import Progress

_SECONDS_BETWEEN_REPORTS = 0.2


def progress_bar(what: str, report: Progress) -> type[Any]:
    """Return a tqdm class whose byte bars report the share of bytes on disk to ``report``, and which draws nothing."""

    class ReportingBar(tqdm):  # type: ignore[misc]
        """Counts bytes. The client makes several bars; the one that counts what is on disk is reported."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._reports = kwargs.get("unit") == "B" and kwargs.get("desc") != "Downloading bytes"
            self._last = 0.0
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": False, "file": _Nowhere(), "mininterval": 1e9})

        def update(self, n: float | None = 1) -> bool | None:
            """Count, and report when it is time or all is there. Called from the client's threads."""
            done: bool | None = super().update(n)
            now = time.monotonic()
            complete = bool(self.total) and self.n >= self.total
            if self._reports and self.total and (complete or now - self._last > _SECONDS_BETWEEN_REPORTS):
                self._last = now
                report(what, min(1.0, self.n / self.total))
            return done

    return ReportingBar


class _Nowhere:
    """A stream that swallows what tqdm draws."""

    def write(self, text: str) -> int:
        """Drop ``text``."""
        return len(text)

    def flush(self) -> None:
        """Do nothing."""
