"""Asking the engines what they hold. They answer between two steps, so an answer may be late, or never come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from vllm_mlx_core.api import EngineClient, ModelStats, RequestError, RequestTimedOut

ANSWER_S = 10.0
"""How long to wait. Nobody who watches a server waits much longer for it."""


async def model_stats(engine: EngineClient) -> Sequence[ModelStats]:
    """Return every model's figures. Raises EngineFailed if an engine ended, RequestTimedOut if one does not answer."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await engine.stats()
    except TimeoutError as error:
        raise RequestTimedOut(f"An engine did not answer within {ANSWER_S:g} seconds.") from error


async def model_stats_if_any(engine: EngineClient) -> Sequence[ModelStats]:
    """Return every model's figures, none if they cannot be had: a server must be watched most when it is not well."""
    try:
        return await model_stats(engine)
    except RequestError:
        return ()


def model_health(engine: EngineClient) -> dict[str, bool]:
    """Return for each model whether its engine is well."""
    report = engine.health()
    models = report.get("models", {})
    overall = report.get("status")
    return {info.id: models.get(info.id, {}).get("status", overall) == "ok" for info in engine.models()}
