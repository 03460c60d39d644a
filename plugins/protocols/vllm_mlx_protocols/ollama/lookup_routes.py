"""The routes that say what is served. Ollama's clients ask before they talk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient
from vllm_mlx_protocols.http import JSONBytes

from .models import listed, running, shown
from .names import named
from .schema import NamedRequest

OLLAMA_VERSION = "0.14.0"
"""The release of Ollama whose protocols are spoken here. Clients compare it with the oldest that they work with."""


def add_lookup_routes(router: APIRouter, engine: EngineClient) -> None:
    """Add version, tags, ps and show to the routes."""

    async def sizes() -> dict[str, int]:
        return {stats.model: stats.weights_bytes for stats in await engine.stats()}

    def look_up(path: str, operation_id: str, answer: Callable[[], Awaitable[Response]]) -> None:
        router.get(path, operation_id=operation_id)(answer)
        router.head(path, include_in_schema=False)(answer)  # clients ask whether the server is there

    async def tell_version() -> Response:
        """Say which Ollama this is like, and which version of this server it is."""
        return JSONBytes({"version": OLLAMA_VERSION, "vllm_mlx": version("vllm-mlx-core")})

    async def list_models() -> Response:
        """List what is served."""
        weights = await sizes()
        return JSONBytes({"models": [listed(info, weights.get(info.id, 0)) for info in engine.models()]})

    async def list_running() -> Response:
        """List what is loaded, which is the same."""
        weights = await sizes()
        return JSONBytes({"models": [running(info, weights.get(info.id, 0)) for info in engine.models()]})

    look_up("/api/version", "ollamaVersion", tell_version)
    look_up("/api/tags", "ollamaTags", list_models)
    look_up("/api/ps", "ollamaPs", list_running)

    @router.post("/api/show", operation_id="ollamaShow")
    async def show(body: NamedRequest) -> Response:
        """Describe a model."""
        return JSONBytes(shown(named(engine, body)))
