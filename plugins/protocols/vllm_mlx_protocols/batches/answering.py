"""Has the engine answer a line, however long that takes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from vllm_mlx_core.api import (
    EngineClient,
    EngineFailed,
    Overloaded,
    RateLimited,
    RequestError,
    RequestTimedOut,
    Settings,
)
from vllm_mlx_protocols.http import Caller

from .answers import Answer, answered, refused
from .endpoints import ENDPOINTS
from .idle import idle
from .lines import decode
from .places import Places
from .tables import Batch, Task

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
"""How long to wait for an engine that has no room, at first and at most."""
_ALMOST_S = 1.0
"""What the engine's clock and the calendar may differ by."""


class Answerer:
    """Answers lines with one engine, of which batches take few places."""

    def __init__(
        self,
        engine: EngineClient,
        settings: Settings,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._places = Places(settings)
        self._clock = clock
        self._sleep = sleep

    async def answer(self, batch: Batch, task: Task, line: bytes) -> Answer | None:
        """Return what came of a line, or None if the batch's time was over first.

        A server that is busy, or whose engine has broken down, is waited for: that is no fault of the line.
        """
        request_id = secrets.token_hex(16)
        caller = Caller(batch.owner or None, request_id)
        endpoint, body = ENDPOINTS[batch.endpoint], decode(line)["body"]
        pause = FIRST_PAUSE_S
        while (left := batch.expires_at - self._clock()) > 0:
            try:
                async with asyncio.timeout(left):
                    reply = await endpoint(idle(self._engine, left), self._settings, body, caller, self._places)
                return answered(task.custom_id, request_id, reply.body, reply.usage)
            except RequestError as error:
                if isinstance(error, RequestTimedOut) and self._is_over(batch):
                    return None
                if not self._is_passing(error):
                    return refused(task.custom_id, request_id, error)
            except Exception as failure:
                if isinstance(failure, TimeoutError) and self._is_over(batch):
                    return None
                log.exception("Line %d of %s failed", task.number, batch.id)
                return refused(task.custom_id, request_id, EngineFailed("The server failed on this request."))
            await self._sleep(min(pause, left))
            pause = min(2 * pause, MAX_PAUSE_S)
        return None

    def _is_over(self, batch: Batch) -> bool:
        return batch.expires_at - self._clock() < _ALMOST_S

    def _is_passing(self, error: RequestError) -> bool:
        if isinstance(error, EngineFailed):
            return bool(self._engine.health()["status"] != "ok")
        return isinstance(error, (Overloaded, RateLimited))
