"""The front-end: its routes, its errors, and what it observes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.responses import Response

from vllm_mlx_core.api import (
    EngineClient,
    ProtocolFrontend,
    RequestError,
    RequestSummary,
    Settings,
    StepStats,
    hookimpl,
)
from vllm_mlx_protocols.http import JSONBytes
from vllm_mlx_protocols.openai.errors import DOCUMENTED_ERRORS, envelope

from .control_routes import add_control_routes
from .options import check_options, wanted_endpoint, wants_metrics
from .report_routes import add_report_routes

if TYPE_CHECKING:
    from .metrics import Metrics
    from .tracing import Tracing


class OperationsFrontend(ProtocolFrontend):
    """Serves readiness, status, capabilities, the cache, running requests and, if asked to, metrics and traces."""

    paths = ("/ready", "/version", "/metrics", "/v1/status", "/v1/capabilities", "/v1/cache", "/v1/requests")

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        """Prepare what the operator switched on. Raises MissingExtra if it is not installed."""
        super().__init__(engine, settings)
        check_options(settings)
        self._metrics: Metrics | None = None
        self._tracing: Tracing | None = None
        # Both are imported only if they are used: their libraries take longer to import than all the rest of this.
        if wants_metrics(settings):
            from .metrics import Metrics

            self._metrics = Metrics(info.id for info in engine.models())
        if (endpoint := wanted_endpoint(settings)) is not None:
            from .tracing import Tracing

            self._tracing = Tracing.to(endpoint)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=["operations"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS)
        add_report_routes(router, self.engine, self.settings)
        add_control_routes(router, self.engine, self.settings)
        if self._metrics is not None:
            from .metrics_route import add_metrics_route

            add_metrics_route(router, self.engine, self._metrics)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return OpenAI's error envelope."""
        return JSONBytes(envelope(error), error.status)

    @hookimpl
    def vllm_mlx_mount(self, app: FastAPI) -> None:
        """Look out for the traces that requests belong to."""
        if self._tracing is not None:
            from .incoming_traces import NoteTraces

            app.add_middleware(NoteTraces, traces=self._tracing.incoming)

    @hookimpl
    def vllm_mlx_request_finished(self, summary: RequestSummary) -> None:
        """Count a request and trace it."""
        if self._metrics is not None:
            self._metrics.request_finished(summary)
        if self._tracing is not None:
            self._tracing.request_finished(summary)

    @hookimpl
    def vllm_mlx_step_finished(self, stats: StepStats) -> None:
        """Count a step."""
        if self._metrics is not None:
            self._metrics.step_finished(stats)

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Send the last spans when the server stops."""
        return self._live()

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
