"""The route that Prometheus asks."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from vllm_mlx_core.api import EngineClient

from .asking import model_health, model_stats_if_any
from .metrics import MEDIA_TYPE, Metrics


def add_metrics_route(router: APIRouter, engine: EngineClient, metrics: Metrics) -> None:
    """Add ``/metrics``."""

    @router.get("/metrics", operation_id="metrics", response_class=PlainTextResponse)
    async def scrape() -> Response:
        """Return all metrics in Prometheus's text format."""
        stats = await model_stats_if_any(engine)
        return PlainTextResponse(metrics.exposition(stats, model_health(engine)), media_type=MEDIA_TYPE)
