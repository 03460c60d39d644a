"""How much a client may send: the body is read, counted and checked before anything else looks at it."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_mlx_core.api import InvalidRequest, PayloadTooLarge

from .json_body import sanitise

IDLE_S = 60.0
"""Longest pause within a body, in seconds."""


class BodyTimedOut(InvalidRequest):
    """The client stopped in the middle of its body."""

    status = 408


class EncodedBody(InvalidRequest):
    """The body is compressed. What it would grow to is not to be found out."""

    status = 415


class BodyLimit:
    """Reads a request's body, at most ``max_bytes``, and hands it on in one piece."""

    def __init__(self, app: ASGIApp, max_bytes: int, *, idle_s: float = IDLE_S) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; do nothing if the client left midway.

        Raises PayloadTooLarge, BodyTimedOut, EncodedBody or InvalidRequest.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        for name, value in headers:
            if name == b"content-length":
                self._check(_number(value))
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise EncodedBody("A compressed request body cannot be read: send it as it is.")
        body = await self._read(receive)
        if body is None:
            return
        # Of two such headers others may believe either.
        if any(name == b"content-type" and b"json" in value.lower() for name, value in headers):
            body = sanitise(body)
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        pieces: list[bytes] = []
        size = 0
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    message = await receive()
            except TimeoutError as error:
                raise BodyTimedOut(f"No more of the request body came for {self._idle_s:g} seconds.") from error
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
