"""How many completions batches may have under way at one time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vllm_mlx_core.api import InvalidRequest, Settings


class Places:
    """Places that lines take for all their completions at once, first come, first served. Event-loop thread only.

    There are half as many as an engine decodes together, as what runs is not stopped for who comes later, and at most
    a quarter of what it takes.
    """

    def __init__(self, settings: Settings) -> None:
        engine = settings.engine
        self.total = max(1, min(engine.max_num_seqs // 2, (engine.max_num_seqs + engine.max_queue) // 4))
        self._free = self.total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, count: int) -> AsyncIterator[None]:
        """Wait for ``count`` places and keep them meanwhile. Raises InvalidRequest if there are never so many."""
        if count > self.total:
            raise InvalidRequest(f"n: a line of a batch may ask for {self.total} completions at most.", param="n")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        self._let_in()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += count
            else:
                turn.cancel()
            self._let_in()

    def _let_in(self) -> None:
        waiting = self._waiting
        while waiting and (waiting[0][1].done() or waiting[0][0] <= self._free):
            count, turn = waiting.popleft()
            if not turn.done():
                self._free -= count
                turn.set_result(None)
