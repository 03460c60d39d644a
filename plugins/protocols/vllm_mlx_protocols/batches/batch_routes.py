"""The routes of batches."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from vllm_mlx_core.api import InvalidRequest
from vllm_mlx_protocols.http import JSONBytes

from .endpoints import ENDPOINTS
from .ledger import Ledger, Order
from .objects import batch_object, page
from .owner import owner
from .runner import Runner
from .schema import BatchRequest

_MAX_PAGE = 100


def add_batch_routes(router: APIRouter, ledger: Ledger, runner: Runner) -> None:
    """Add the routes of batches to those of ``/v1``."""

    @router.post("/batches", operation_id="createBatch")
    async def create_batch(request: Request, body: BatchRequest) -> Response:
        """Have the lines of a file answered."""
        if body.endpoint not in ENDPOINTS:
            choices = ", ".join(ENDPOINTS)
            raise InvalidRequest(f"endpoint: batches are answered for {choices}.", param="endpoint")
        expiry = body.output_expires_after
        order = Order(body.input_file_id, body.endpoint, body.metadata, None if expiry is None else expiry.seconds)
        batch = await ledger.create(owner(request), order)
        runner.start(batch.id)
        return JSONBytes(batch_object(batch))

    @router.get("/batches", operation_id="listBatches")
    async def list_batches(
        request: Request, limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 20, after: str | None = None
    ) -> Response:
        """List batches, the newest first."""
        batches, has_more = await ledger.page(owner(request), after=after, limit=limit)
        return JSONBytes(page([batch_object(batch) for batch in batches], has_more=has_more))

    @router.get("/batches/{batch_id}", operation_id="retrieveBatch")
    async def retrieve_batch(request: Request, batch_id: str) -> Response:
        """Return a batch as it is now."""
        batch = await ledger.get(owner(request), batch_id)
        if batch.ended_at is None:
            runner.start(batch.id)  # the server that worked on it may be gone
        return JSONBytes(batch_object(batch))

    @router.post("/batches/{batch_id}/cancel", operation_id="cancelBatch")
    async def cancel_batch(request: Request, batch_id: str) -> Response:
        """End a batch; what is finished is kept."""
        batch = await ledger.cancel(owner(request), batch_id)
        if batch.status == "cancelling":
            await runner.restart(batch.id)
        return JSONBytes(batch_object(batch))
