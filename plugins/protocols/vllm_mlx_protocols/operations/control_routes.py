"""The routes that change something: they end requests and clear caches."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, NotFound, Settings
from vllm_mlx_protocols.http import JSONBytes, caller

from .cache import to_cleared


class Cancelled(msgspec.Struct, kw_only=True):
    """The body of the answer to a cancellation."""

    object: Literal["request.cancel"] = "request.cancel"
    id: str
    cancelled: Literal[True] = True


def add_control_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add cancelling and clearing."""

    async def cancel_request(request: Request, request_id: str) -> Response:
        """End a request of the caller, found by the id of its answer or by its X-Request-Id."""
        if not engine.cancel(request_id, user=caller(request).user):
            raise NotFound("No request of this id is running.", param="request_id", code="request_not_found")
        return JSONBytes(Cancelled(id=request_id))

    router.post("/v1/requests/{request_id}/cancel", operation_id="cancelRequest")(cancel_request)
    router.delete("/v1/requests/{request_id}", operation_id="deleteRequest")(cancel_request)

    async def clear_cache() -> Response:
        """Drop what the prefix caches hold and no request uses."""
        return JSONBytes(to_cleared(await engine.clear_cache(), rewarm=bool(settings.warm_prompts)))

    # There is no other cache yet, so all of them and this one are the same.
    router.delete("/v1/cache", operation_id="clearCache")(clear_cache)
    router.delete("/v1/cache/prefix", operation_id="clearPrefixCache")(clear_cache)
