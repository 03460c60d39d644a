"""The front-end: its routes and its errors."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import ProtocolFrontend, RequestError
from vllm_mlx_protocols.http import JSONBytes

from .errors import envelope
from .routes import openai_router


class OpenAIFrontend(ProtocolFrontend):
    """Serves ``/v1/chat/completions``, ``/v1/completions`` and ``/v1/models``."""

    paths = ("/v1",)

    def router(self) -> APIRouter:
        """Return the routes."""
        return openai_router(self.engine, self.settings)

    def render_error(self, error: RequestError) -> Response:
        """Return OpenAI's error envelope."""
        return JSONBytes(envelope(error), error.status)
