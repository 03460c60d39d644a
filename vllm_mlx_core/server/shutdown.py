"""How a request learns that it is aborted because the server stops, and not because its client left."""

from __future__ import annotations

import asyncio
from typing import Any

_REASON = "vllm-mlx: the server is shutting down"


def abort(task: asyncio.Task[Any]) -> None:
    """Cancel the task of a request so that it still tells its client why."""
    task.cancel(_REASON)


def is_shutdown(failure: BaseException) -> bool:
    """Return whether ``failure`` comes from ``abort``."""
    return isinstance(failure, asyncio.CancelledError) and failure.args == (_REASON,)
