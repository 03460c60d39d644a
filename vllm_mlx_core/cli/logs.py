"""Logging of a command that runs for long."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from datetime import UTC, datetime
from threading import Lock
from typing import Any, TextIO

log = logging.getLogger(__name__)

CHATTY = ("asyncio", "filelock", "httpcore", "httpx", "urllib3")
"""Libraries that log each of their steps at the levels that our users want for ours."""


def configure(level: str, format: str = "text") -> None:
    """Log to standard error from ``level`` on (debug, info, warning, error). Mutates the root logger.

    ``format`` is text, or json for one object a line, whatever logs; Python's own warnings are then logged, too.
    """
    handler = _StandardError()
    if format == "json":
        handler.setFormatter(JSONFormatter())
        logging.captureWarnings(True)
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in CHATTY:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


class JSONFormatter(logging.Formatter):
    """Writes time (UTC), level, logger and message; of a request the fields of its access record, too."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        access = getattr(record, "access", None)
        if access is not None:
            fields.update(dataclasses.asdict(access), message="request")
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)  # escapes line ends of every kind


class LoggedProgress:
    """A ``Progress`` that logs once that a phase began, where lines that are no records would be in the way."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._said: set[str] = set()

    def __call__(self, what: str, fraction: float | None = None) -> None:
        """Log ``what`` if it is new. Any thread."""
        with self._lock:
            new = what not in self._said
            self._said.add(what)
        if new:
            log.info("%s", what)


class _StandardError(logging.StreamHandler[TextIO]):
    """Looks standard error up for each record: while a progress bar is shown, it is replaced by one that makes room."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr
