"""The front-end: its routes, its errors and the life of what works on batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, ProtocolFrontend, RequestError, Settings
from vllm_mlx_protocols.http import JSONBytes
from vllm_mlx_protocols.openai.errors import DOCUMENTED_ERRORS, envelope

from .answering import Answerer
from .batch_routes import add_batch_routes
from .contents import Contents
from .file_routes import add_file_routes
from .files import Files
from .ledger import Ledger
from .options import STORAGE, open_database
from .progress import Progress
from .runner import Runner


class BatchesFrontend(ProtocolFrontend):
    """Serves ``/v1/files`` and ``/v1/batches``."""

    paths = ("/v1/files", "/v1/batches")

    def __init__(self, engine: EngineClient, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        """Open the database. Raises UsageError if it cannot be used."""
        super().__init__(engine, settings)
        age_s = STORAGE.max_age_s(settings)
        self._database = open_database(settings)
        contents = Contents(self._database, max_age_s=age_s, max_bytes=STORAGE.max_bytes(settings), clock=clock)
        self._files = Files(self._database, contents)
        served = ", ".join(info.id for info in engine.models())
        self._ledger = Ledger(self._database, self._files, contents, served=served, max_age_s=age_s)
        progress = Progress(self._database, contents, served=served, clock=clock)
        self._runner = Runner(progress, Answerer(engine, settings, clock=clock), settings)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(
            prefix="/v1", tags=["batches"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS
        )
        add_file_routes(router, self._files)
        add_batch_routes(router, self._ledger, self._runner)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return OpenAI's error envelope."""
        return JSONBytes(envelope(error), error.status)

    async def drain(self) -> None:
        """Drop the lines in flight, so that the time that is left is for those who wait. The next start does them."""
        await self._runner.stop()

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Go on with what an earlier process left, and leave in the end what is not done."""
        return self._live()

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._runner.watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._runner.stop()
            self._database.close()
