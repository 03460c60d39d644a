"""The address itself, which Ollama's command line and others knock at before anything else."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response


def add_root(router: APIRouter) -> None:
    """Add ``/`` to the routes."""

    @router.head("/", include_in_schema=False)
    @router.get("/", operation_id="ollamaRoot", response_class=PlainTextResponse)
    async def root() -> Response:
        """Say that there is a server that Ollama's clients can use."""
        return PlainTextResponse("Ollama is running")
