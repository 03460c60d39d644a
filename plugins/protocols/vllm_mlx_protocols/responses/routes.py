"""The routes: HTTP in, the service asked, HTTP out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from vllm_mlx_core.api import ClientDisconnected, EventStream, InvalidRequest, or_disconnect
from vllm_mlx_protocols.http import JSONBytes, StreamingEvents, documented_stream, nobody
from vllm_mlx_protocols.openai.errors import DOCUMENTED_ERRORS

from .items import Item
from .job import Job, SavingOutputs
from .schema import ResponsesRequest
from .service import ResponseService
from .stream import ResponseStreamEncoder

_MAX_PAGE = 100


def responses_router(service: ResponseService) -> APIRouter:
    """Return the routes of ``/v1/responses``."""
    router = APIRouter(
        prefix="/v1/responses", tags=["responses"], default_response_class=JSONBytes, responses=DOCUMENTED_ERRORS
    )

    @router.post("", operation_id="createResponse", responses=documented_stream())
    async def create_response(request: Request, body: ResponsesRequest) -> Response:
        """Answer a conversation."""
        job = await service.begin(body, _user(request), request.scope.get("state", {}).get("request_id"))
        if body.background:
            await service.background.start(job)
            return JSONBytes(job.response)
        if body.stream:
            outputs = SavingOutputs(job.outputs, lambda: service.save(job))
            return StreamingEvents(EventStream(outputs, ResponseStreamEncoder(job)))
        try:
            await or_disconnect(request.receive, _finish(service, job))
        except ClientDisconnected:
            return nobody()
        finally:
            await job.outputs.aclose()
        return JSONBytes(job.conclude())

    @router.post("/input_tokens", operation_id="countResponseInputTokens")
    async def count_input_tokens(request: Request, body: ResponsesRequest) -> Response:
        """Count the tokens of what would be the prompt."""
        count = await service.count(body, _user(request))
        return JSONBytes({"object": "response.input_tokens", "input_tokens": count})

    @router.get("/{response_id}", operation_id="getResponse")
    async def get_response(request: Request, response_id: str, stream: str | None = None) -> Response:
        """Return a stored response."""
        if stream not in (None, "", "false", "False", "0"):
            raise InvalidRequest("stream: a stored response cannot be streamed again.", param="stream")
        return JSONBytes((await service.find(_user(request), response_id)).response)

    @router.delete("/{response_id}", operation_id="deleteResponse")
    async def delete_response(request: Request, response_id: str) -> Response:
        """Forget a stored response."""
        await service.delete(_user(request), response_id)
        return JSONBytes({"id": response_id, "object": "response", "deleted": True})

    @router.get("/{response_id}/input_items", operation_id="listInputItems")
    async def list_input_items(
        request: Request,
        response_id: str,
        limit: Annotated[int, Query(ge=1, le=_MAX_PAGE)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> Response:
        """List what the request of a stored response held."""
        found = await service.find(_user(request), response_id)
        items = found.input if order == "asc" else found.input[::-1]
        return JSONBytes(_page(items, limit, after))

    @router.post("/{response_id}/cancel", operation_id="cancelResponse")
    async def cancel_response(request: Request, response_id: str) -> Response:
        """End a background response."""
        return JSONBytes(await service.cancel(_user(request), response_id))

    return router


async def _finish(service: ResponseService, job: Job) -> None:
    await job.read()
    await service.save(job)


def _page(items: list[Any], limit: int, after: str | None) -> dict[str, Any]:
    """Return one page of a list. Raises InvalidRequest if ``after`` is not in it."""
    start = 0
    if after is not None:
        start = next((place for place, item in enumerate(items, 1) if item["id"] == after), 0)
        if not start:
            raise InvalidRequest("after: there is no such item.", param="after")
    page: list[Item] = items[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(items),
    }


def _user(request: Request) -> str | None:
    """Return whom the server recognised by their key."""
    user: str | None = request.scope.get("state", {}).get("user")
    return user
