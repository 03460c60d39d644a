"""Responses that are made while nobody waits."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from vllm_mlx_core.api import EngineFailed, Overloaded, RequestCancelled, RequestError

from .job import Job
from .response import failed
from .store import Store

log = logging.getLogger(__name__)


class Background:
    """Runs jobs to their end and stores what comes of them. Event-loop thread only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, tuple[asyncio.Task[None], asyncio.Future[RequestError]]] = {}

    async def start(self, job: Job) -> None:
        """Store the response as it is now, and go on by itself."""
        try:
            await self._store.put(job.owner, job.response, job.items)
        except BaseException:
            await job.outputs.aclose()
            raise
        stop: asyncio.Future[RequestError] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(job, stop))
        self._running[job.id] = task, stop
        task.add_done_callback(lambda _: self._running.pop(job.id, None))

    async def cancel(self, response_id: str) -> None:
        """End a response, if it runs, and return when its end is stored."""
        await self._stop(response_id, RequestCancelled("The response was cancelled."))

    async def stop(self) -> None:
        """End all of them: the server stops."""
        for response_id in list(self._running):
            await self._stop(response_id, Overloaded("The server was stopped."))

    async def _stop(self, response_id: str, reason: RequestError) -> None:
        if response_id in self._running:
            task, stop = self._running[response_id]
            if not stop.done():
                stop.set_result(reason)
            await asyncio.shield(task)

    async def _run(self, job: Job, stop: asyncio.Future[RequestError]) -> None:
        reading = asyncio.create_task(job.read())
        try:
            await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
            response = _outcome(job, reading, stop)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await job.outputs.aclose()
        try:
            await self._store.put(job.owner, response, job.items)
        except Exception:
            log.exception("The response %s could not be stored", job.id)


def _outcome(job: Job, reading: asyncio.Task[None], stop: asyncio.Future[RequestError]) -> dict[str, Any]:
    try:
        if not reading.done():
            raise stop.result()
        reading.result()
        return job.conclude()
    except RequestCancelled:
        return {**job.response, "status": "cancelled"}
    except RequestError as error:
        return failed(job.response, error, [])
    except Exception:
        log.exception("The response %s failed", job.id)
        return failed(job.response, EngineFailed("The server failed on this request."), [])
