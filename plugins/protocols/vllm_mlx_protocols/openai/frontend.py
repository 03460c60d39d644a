"""The front-end: its routes and its errors."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import ProtocolFrontend, RequestError
from vllm_mlx_protocols.http import JSONBytes

from .errors import DOCUMENTED_ERRORS, envelope
from .lookup_routes import add_lookup_routes
from .routes import add_generating_routes


class OpenAIFrontend(ProtocolFrontend):
    """Serves ``/v1``: chat completions, completions, models, tokenize and detokenize."""

    paths = ("/v1",)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1", tags=["openai"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS)
        add_generating_routes(router, self.engine, self.settings)
        add_lookup_routes(router, self.engine)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return OpenAI's error envelope."""
        return JSONBytes(envelope(error), error.status)
