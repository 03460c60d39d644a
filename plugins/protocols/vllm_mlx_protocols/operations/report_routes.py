"""The routes that tell and change nothing."""

from __future__ import annotations

import time
from importlib.metadata import version

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, Settings
from vllm_mlx_protocols.http import JSONBytes, caller

from .asking import model_health, model_stats, model_stats_if_any
from .cache import to_report
from .capabilities import to_capabilities
from .status import to_status

DISTRIBUTION = "vllm-mlx-core"


def add_report_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add readiness, version, status, capabilities and the cache's figures. The server starts now."""
    started = time.monotonic()

    @router.head("/ready", include_in_schema=False)
    @router.get("/ready", operation_id="ready")
    async def ready() -> Response:
        """Say whether requests can be sent: 200 if every engine is well, else 503."""
        report = engine.health()
        return JSONBytes(report, 200 if report.get("status") == "ok" else 503)

    @router.get("/version", operation_id="version")
    async def tell_version() -> Response:
        """Say which version this is."""
        return JSONBytes({"version": version(DISTRIBUTION)})

    @router.get("/v1/status", operation_id="status")
    async def status(request: Request) -> Response:
        """Say what the server does. With API keys, the requests listed are those of the caller's name."""
        stats = await model_stats_if_any(engine)
        return JSONBytes(
            to_status(
                model_health(engine),
                stats,
                engine.active_requests(),
                user=caller(request).user,
                uptime_s=time.monotonic() - started,
            )
        )

    @router.get("/v1/capabilities", operation_id="capabilities")
    async def capabilities(request: Request) -> Response:
        """Say what the served models and this server honour."""
        routes = getattr(request.app.state, "paths", ())
        return JSONBytes(to_capabilities(engine.models(), settings, routes=routes, version=version(DISTRIBUTION)))

    @router.get("/v1/cache/stats", operation_id="cacheStats")
    async def cache_stats() -> Response:
        """Say what the prefix caches hold and did."""
        return JSONBytes(to_report(await model_stats(engine), lambda model, token: engine.detokenize(model, [token])))
