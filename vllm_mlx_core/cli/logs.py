"""Logging of a command that runs for long."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

CHATTY = ("asyncio", "filelock", "httpcore", "httpx", "urllib3")
"""Libraries that log each of their steps at the levels that our users want for ours."""


def configure(level: str) -> None:
    """Log to standard error from ``level`` on (debug, info, warning, error). Mutates the root logger."""
    handler = _StandardError()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if level != "debug":
        for name in CHATTY:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


class _StandardError(logging.StreamHandler[TextIO]):
    """Looks standard error up for each record: while a progress bar is shown, it is replaced by one that makes room."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr
