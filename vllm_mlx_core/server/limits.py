"""How much a client may send: the body is read, counted and checked before anything else looks at it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_mlx_core.api import PayloadTooLarge

from .json_body import sanitise


class BodyLimit:
    """Reads a request's body, at most ``max_bytes``, and hands it on in one piece."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise PayloadTooLarge or InvalidRequest; do nothing if the client left midway."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        self._check(_number(headers.get(b"content-length", b"")))
        body = await self._read(receive)
        if body is None:
            return
        if b"json" in headers.get(b"content-type", b"").lower():
            body = sanitise(body)
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            piece = message.get("body", b"")
            size += len(piece)
            self._check(size)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise PayloadTooLarge(f"The request body is larger than the {self._max_bytes:,} bytes this server accepts.")


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 20 else 0
