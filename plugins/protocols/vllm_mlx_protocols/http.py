"""What every front-end of this package does with HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from vllm_mlx_core.api import Completion, EventStream, OutputStream, or_disconnect

encode = msgspec.json.Encoder().encode
"""Return the JSON of a struct, dictionary or string. Never escapes to ASCII."""


class JSONBytes(JSONResponse):
    """A JSON response made of anything msgspec encodes."""

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return encode(content)


def documented_errors(form: str, **properties: Any) -> dict[int | str, dict[str, Any]]:
    """Return the errors of routes for the OpenAPI document, or FastAPI would name its own 422, which nobody ever gets.

    ``form`` says what the body is called, ``properties`` are the JSON Schemas of its fields, all of which are there.
    """
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    content = {"application/json": {"schema": schema}}
    return {
        "4XX": {"description": f"What is wrong with the request, in {form}.", "content": content},
        "5XX": {"description": f"What the server could not do, in {form}.", "content": content},
    }


def documented_stream(media_type: str = "text/event-stream") -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document says of a route that streams as well."""
    return {200: {"description": "The answer, whole or as a stream.", "content": {media_type: {}}}}


def nobody() -> Response:
    """Return what nobody will read; 499 is what access logs call a client that left."""
    return Response(status_code=499)


class StreamingEvents(Response):
    """A response that FastAPI takes for one and that an EventStream gives."""

    def __init__(self, stream: EventStream) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        await self._stream(scope, receive, send)


class Caller(NamedTuple):
    """Who sent a request, and under which id it is found again. Both go into the GenerateRequest.

    ``user`` is the name of the API key, None if the server asks for none. ``trace_id`` is the request's X-Request-Id.
    """

    user: str | None
    trace_id: str | None


def caller(request: Request) -> Caller:
    """Return what the server found out about a request before its route was called."""
    state = request.scope.get("state", {})
    return Caller(state.get("user"), state.get("request_id"))


async def collect(outputs: OutputStream, count: int) -> Sequence[Completion]:
    """Return the ``count`` finished completions of a request; closes ``outputs``. Raises RequestError if it fails."""
    completions = [Completion() for _ in range(count)]
    try:
        async for step in outputs:
            for output in step:
                completions[output.choice].add(output)
    finally:
        await outputs.aclose()
    return completions


async def gather(request: Request, outputs: OutputStream, count: int) -> Sequence[Completion]:
    """Collect for a client. Raises what ``collect`` does, and ClientDisconnected as soon as nobody waits for it."""
    try:
        return await or_disconnect(request.receive, collect(outputs, count))
    finally:
        await outputs.aclose()  # whoever is cancelled before the work begins leaves this to do
