"""``/health``: the one route that needs no key, because whoever restarts the server has none."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from vllm_mlx_core.api import EngineClient


def is_health(scope: Scope) -> bool:
    """Return whether a request is for the open route: GET or HEAD of exactly ``/health``."""
    return scope["type"] == "http" and scope["path"] == "/health" and scope["method"] in ("GET", "HEAD")


def health_router(engine: EngineClient) -> APIRouter:
    """Return the route: 200 while every engine is well, 503 otherwise, with the engines' own report as the body."""
    router = APIRouter(tags=["health"])

    @router.head("/health", include_in_schema=False)
    @router.get("/health", operation_id="health", response_class=JSONResponse)
    async def health() -> Response:
        """Say whether the server can answer."""
        report = dict(engine.health())
        return JSONResponse(report, 200 if report.get("status") == "ok" else 503)

    return router
