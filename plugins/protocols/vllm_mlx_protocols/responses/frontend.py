"""The front-end: its routes, its errors and the life of its store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, ProtocolFrontend, RequestError, Settings
from vllm_mlx_protocols.database import DatabaseFailed
from vllm_mlx_protocols.http import JSONBytes
from vllm_mlx_protocols.openai.errors import envelope

from .options import open_store
from .routes import responses_router
from .service import ResponseService


class ResponsesFrontend(ProtocolFrontend):
    """Serves ``/v1/responses``."""

    paths = ("/v1/responses",)

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        """Open the store. Raises UsageError if it cannot be used."""
        super().__init__(engine, settings)
        self._service = ResponseService(engine, settings, open_store(settings))

    def router(self) -> APIRouter:
        """Return the routes."""
        return responses_router(self._service)

    def render_error(self, error: RequestError) -> Response:
        """Return OpenAI's error envelope."""
        return JSONBytes(envelope(error), error.status)

    async def drain(self) -> None:
        """Let background responses come to their end."""
        await self._service.background.drain()

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Settle what an earlier process left, and in the end what this one does."""
        return self._live()

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        try:
            with suppress(DatabaseFailed):  # it is in the log, and answers can be given without being stored
                await self._service.store.fail_abandoned()
            yield
        finally:
            await self._service.background.close()
            self._service.store.close()
