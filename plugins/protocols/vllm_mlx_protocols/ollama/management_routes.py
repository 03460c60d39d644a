"""The routes of Ollama's model library. What is served here is the operator's to choose, so they change nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, NotFound, Unsupported
from vllm_mlx_protocols.http import JSONBytes

from .names import named
from .schema import PullRequest
from .stream import NDJSON, line

REFUSED = {
    ("POST", "/api/push"): "models are not published from here",
    ("POST", "/api/create"): "models are made elsewhere, and served by the operator",
    ("POST", "/api/copy"): "other names of a model are the operator's to give (--served-model-name)",
    ("DELETE", "/api/delete"): "what is served is the operator's to choose",
    ("POST", "/api/blobs/{digest}"): "this server takes no files",
    ("HEAD", "/api/blobs/{digest}"): "this server takes no files",
    ("POST", "/api/embed"): "embeddings are not in this build",
    ("POST", "/api/embeddings"): "embeddings are not in this build",
}
"""Routes that Ollama has and this server has not, and why."""


def add_management_routes(router: APIRouter, engine: EngineClient) -> None:
    """Add pull, and the routes that are refused."""

    @router.post("/api/pull", operation_id="ollamaPull")
    async def pull(body: PullRequest) -> Response:
        """Say that a served model is here, as clients pull before they use one. Nothing is ever fetched."""
        try:
            named(engine, body)
        except NotFound as error:
            raise Unsupported("pull: this server fetches no models, and this one is not served.") from error
        success = {"status": "success"}
        return JSONBytes(success) if body.stream is False else Response(line(success), media_type=NDJSON)

    for (method, path), reason in REFUSED.items():
        name = path.split("/")[2]
        refusal = _refusal(f"{name} is not supported: {reason}.")
        router.add_api_route(path, refusal, methods=[method], include_in_schema=False)


def _refusal(message: str) -> Callable[[], Awaitable[Response]]:
    async def refuse() -> Response:
        raise Unsupported(message)

    return refuse
