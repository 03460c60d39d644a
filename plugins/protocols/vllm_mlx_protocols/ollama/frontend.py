"""The front-end: its routes and its errors."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import ProtocolFrontend, RequestError
from vllm_mlx_protocols.http import JSONBytes

from .errors import DOCUMENTED_ERRORS, envelope
from .lookup_routes import add_lookup_routes
from .management_routes import add_management_routes
from .root import add_root
from .routes import add_generating_routes


class OllamaFrontend(ProtocolFrontend):
    """Serves ``/api``: chat, generate, what is served, and refusals of whatever would change what is served."""

    paths = ("/api", "/")
    assumes_json = True

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(tags=["ollama"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS)
        add_root(router)
        add_generating_routes(router, self.engine, self.settings)
        add_lookup_routes(router, self.engine)
        add_management_routes(router, self.engine)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return Ollama's error body."""
        return JSONBytes(envelope(error), error.status)
