"""What every front-end of this package does with HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vllm_mlx_core.api import Completion, EventStream, OutputStream, or_disconnect

encode = msgspec.json.Encoder().encode
"""Return the JSON of a struct, dictionary or string. Never escapes to ASCII."""


class JSONBytes(Response):
    """A JSON response made of anything msgspec encodes."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content."""
        return encode(content)


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


async def gather(request: Request, outputs: OutputStream, count: int) -> Sequence[Completion]:
    """Return the ``count`` finished completions of a request; closes ``outputs``.

    Raises RequestError if generation fails, ClientDisconnected as soon as nobody waits for the answer.
    """
    completions = [Completion() for _ in range(count)]

    async def read() -> None:
        async for step in outputs:
            for output in step:
                completions[output.choice].add(output)

    try:
        await or_disconnect(request.receive, read())
    finally:
        await outputs.aclose()
    return completions
