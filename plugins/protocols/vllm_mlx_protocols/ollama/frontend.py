"""The front-end: its routes and its errors."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import ProtocolFrontend, RequestError
from vllm_mlx_protocols.http import JSONBytes

from .errors import envelope
from .library_routes import add_library_routes
from .lookup_routes import add_lookup_routes
from .routes import add_generating_routes

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "What is wrong with the request, in Ollama's error body."},
    "5XX": {"description": "What the server could not do, in Ollama's error body."},
}
"""Documented, or FastAPI would document its own 422, which no client ever gets."""


class OllamaFrontend(ProtocolFrontend):
    """Serves ``/api``: chat, generate, what is served, and refusals of whatever would change what is served."""

    paths = ("/api",)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/api", tags=["ollama"], default_response_class=Response, responses=_ERRORS)
        add_generating_routes(router, self.engine, self.settings)
        add_lookup_routes(router, self.engine)
        add_library_routes(router, self.engine)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return Ollama's error body."""
        return JSONBytes(envelope(error), error.status)
