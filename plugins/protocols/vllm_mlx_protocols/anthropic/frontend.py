"""The front-end: its routes and its errors."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import ProtocolFrontend, RequestError
from vllm_mlx_protocols.http import JSONBytes

from .errors import DOCUMENTED_ERRORS, envelope
from .routes import add_routes


class AnthropicFrontend(ProtocolFrontend):
    """Serves ``/v1/messages``: messages and the counting of their tokens."""

    paths = ("/v1/messages",)

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(
            prefix="/v1/messages", tags=["anthropic"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS
        )
        add_routes(router, self.engine, self.settings)
        return router

    def render_error(self, error: RequestError) -> Response:
        """Return Anthropic's error envelope."""
        headers = None if error.request_id is None else {"request-id": error.request_id}
        return JSONBytes(envelope(error), error.status, headers)
