"""Works on batches: a task for each, which may be ended and begun again at any time, and a few lines at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from vllm_mlx_core.api import Settings
from vllm_mlx_protocols.database import DatabaseFailed

from .answering import Answerer
from .limits import LINES_IN_FLIGHT
from .progress import Progress
from .tables import Batch, Task

log = logging.getLogger(__name__)

TRY_AGAIN_S = 30.0
LOOK_AROUND_S = 60.0
"""How often to look for what other servers leave."""


class Runner:
    """Brings the batches of this server to their end. Event-loop thread only.

    The lines in flight are shared out evenly between batches, and are at most half of those that the engine decodes
    together: what runs is not stopped for a request that somebody waits for.
    """

    def __init__(
        self,
        progress: Progress,
        answerer: Answerer,
        settings: Settings,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._progress = progress
        self._answerer = answerer
        self._sleep = sleep
        self._slots = asyncio.Semaphore(min(LINES_IN_FLIGHT, max(1, settings.engine.max_num_seqs // 2)))
        self._running: dict[str, asyncio.Task[None]] = {}
        self._has_stopped = False

    async def watch(self) -> None:
        """Go on with what servers left that are gone, now and whenever one goes. Never returns."""
        while True:
            with suppress(DatabaseFailed):  # it is in the log; the next time may be better
                for batch_id in await self._progress.unfinished():
                    self.start(batch_id)
            await self._sleep(LOOK_AROUND_S)

    def start(self, batch_id: str) -> None:
        """Work on a batch by itself, unless somebody does already."""
        if self._has_stopped or batch_id in self._running:
            return
        task = asyncio.create_task(self._run(batch_id))
        self._running[batch_id] = task
        task.add_done_callback(lambda _: self._forget(batch_id, task))

    async def restart(self, batch_id: str) -> None:
        """Drop the lines of a batch that are in flight and look at it again, as its status has changed."""
        await self._end([batch_id])
        self.start(batch_id)

    async def stop(self) -> None:
        """Drop all lines in flight, which stay to be done, and begin nothing any more."""
        self._has_stopped = True
        await self._end(list(self._running))

    async def _end(self, batch_ids: list[str]) -> None:
        tasks = [self._running.pop(batch_id) for batch_id in batch_ids if batch_id in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, batch_id: str, task: asyncio.Task[None]) -> None:
        if self._running.get(batch_id) is task:
            del self._running[batch_id]

    async def _run(self, batch_id: str) -> None:
        while True:
            try:
                while (batch := await self._progress.claim(batch_id)) is not None:
                    await self._advance(batch)
                return
            except* DatabaseFailed:  # why is in the log
                log.warning("The batch %s is interrupted for %g seconds.", batch_id, TRY_AGAIN_S)
            except* Exception:
                log.exception("The batch %s is interrupted for %g seconds", batch_id, TRY_AGAIN_S)
            await self._sleep(TRY_AGAIN_S)

    async def _advance(self, batch: Batch) -> None:
        if batch.status == "validating":
            await self._progress.index(batch)
        elif batch.status == "in_progress":
            await self._answer_lines(batch)
            await self._progress.settle(batch)
        else:
            await self._progress.conclude(batch)

    async def _answer_lines(self, batch: Batch) -> None:
        """Answer what is left, until time is over or the batch is not in progress any more."""
        number = 0
        async with asyncio.TaskGroup() as lines:
            while (task := await self._progress.next_task(batch.id, number)) is not None:
                if not await self._has_slot(batch):
                    return
                number = task.number
                lines.create_task(self._answer(batch, task)).add_done_callback(lambda _: self._slots.release())

    async def _has_slot(self, batch: Batch) -> bool:
        """Take a slot for a line; return False if the batch's time is over."""
        left = batch.expires_at - self._progress.clock()
        if left <= 0:
            return False
        try:
            async with asyncio.timeout(left):
                await self._slots.acquire()
        except TimeoutError:
            return False
        return True

    async def _answer(self, batch: Batch, task: Task) -> None:
        line = await self._progress.line(batch, task)
        answer = None if line is None else await self._answerer.answer(batch, task, line)
        if answer is not None:
            await self._progress.record(batch, task, answer)
