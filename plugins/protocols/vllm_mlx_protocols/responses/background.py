"""Responses that are made while nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from vllm_mlx_core.api import EngineFailed, InvalidRequest, RequestCancelled, RequestError
from vllm_mlx_protocols.database import DatabaseFailed

from .job import Job
from .response import failed
from .store import Store

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""How long to wait before a response is stored that could not be, as when the disk was full."""


@dataclass(slots=True)
class _Running:
    """A job, the task that sees to it, what may stop it, and what came of it."""

    job: Job
    task: asyncio.Task[None]
    stop: asyncio.Future[RequestError]
    ended: asyncio.Future[dict[str, Any]]


class Background:
    """Runs jobs to their end and stores what comes of them. Event-loop thread only."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, _Running] = {}
        self._closing = asyncio.Event()

    async def start(self, job: Job) -> None:
        """Store the response as it is now, and go on by itself.

        Raises InvalidRequest if it is too large for that, and DatabaseFailed.
        """
        try:
            if not await self._store.put(job.owner, job.response, job.items):
                raise InvalidRequest("background: this server stores no response as large as this.", param="background")
        except BaseException:
            await job.outputs.aclose()
            raise
        loop = asyncio.get_running_loop()
        stop: asyncio.Future[RequestError] = loop.create_future()
        ended: asyncio.Future[dict[str, Any]] = loop.create_future()
        task = asyncio.create_task(self._run(job, stop, ended))
        self._running[job.id] = _Running(job, task, stop, ended)
        task.add_done_callback(lambda _: self._running.pop(job.id, None))

    def find(self, owner: str, response_id: str) -> dict[str, Any] | None:
        """Return what came of a response that has ended but could not be stored yet."""
        running = self._running.get(response_id)
        if running is None or running.job.owner != owner or not running.ended.done():
            return None
        return running.ended.result()

    async def cancel(self, owner: str, response_id: str) -> bool:
        """End a response; return, when it has ended, whether it ran."""
        running = self._running.get(response_id)
        if running is None or running.job.owner != owner:
            return False
        await self._stop(running, RequestCancelled("The response was cancelled."))
        return True

    async def drain(self) -> None:
        """Return when all of them have ended by themselves."""
        while self._running:
            await asyncio.wait([each.task for each in self._running.values()])

    async def close(self) -> None:
        """End all of them: the server stops."""
        self._closing.set()
        for running in list(self._running.values()):
            await self._stop(running, EngineFailed("The server was stopped."))
            await asyncio.shield(running.task)

    async def _stop(self, running: _Running, reason: RequestError) -> None:
        if not running.stop.done():
            running.stop.set_result(reason)
        await asyncio.wait((running.task, running.ended), return_when=asyncio.FIRST_COMPLETED)

    async def _run(self, job: Job, stop: asyncio.Future[RequestError], ended: asyncio.Future[dict[str, Any]]) -> None:
        reading = asyncio.create_task(job.read())
        try:
            await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
            response = _outcome(job, reading, stop)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await job.outputs.aclose()
        await self._keep(job, response, ended)

    async def _keep(self, job: Job, response: dict[str, Any], ended: asyncio.Future[dict[str, Any]]) -> None:
        """Store what came of a job, again and again if need be; whoever asks meanwhile is told all the same."""
        while True:
            try:
                if not await self._store.finish(job.owner, response, job.items):
                    error = EngineFailed("The response is larger than what this server stores.")
                    await self._store.finish(job.owner, failed(job.response, error, []), job.items)
                return
            except DatabaseFailed:
                log.error("The response %s cannot be stored; it is kept in memory meanwhile.", job.id)
            if not ended.done():
                ended.set_result(response)
            if self._closing.is_set():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RETRY_S)


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
