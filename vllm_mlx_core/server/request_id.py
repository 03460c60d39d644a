"""Who a request is: the id that its client or the server gave it, and its line in the access log."""

from __future__ import annotations

import logging
import re
import secrets
import time
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

access_log = logging.getLogger("vllm_mlx_core.server.access")

_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class Access:
    """What the log tells about one request; the attribute ``access`` of its record."""

    method: str
    path: str
    """As it was sent, without the query."""
    status: int
    """0: the client left before there was an answer."""
    request_id: str
    duration_s: float
    bytes: int
    """Size of the answer's body, as far as it was sent."""
    user: str | None
    """Name of the API key."""
    client: str | None
    """Address of the client; None on a Unix socket."""

    def __str__(self) -> str:
        """Return the line of the text format."""
        who = f"user={self.user or '-'} client={self.client or '-'}"
        return f"{self.method} {self.path} {self.status} {self.request_id} {self.duration_s:.3f}s {self.bytes}B {who}"


class RequestId:
    """Puts ``request_id`` into the request's state and ``X-Request-Id`` on the response.

    A client's own id is kept if it is at most 128 letters, digits and ``. _ : -``, else a new one is made. When the
    request is over, one record goes to the access log, with what ``Access`` lists: no query, no body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _of_client(scope) or secrets.token_hex(16).encode()
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        status = size = 0
        began = time.perf_counter()

        async def identify(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, identify)
        finally:
            path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "backslashreplace")
            access = Access(
                method=scope["method"],
                path=path,
                status=status,
                request_id=request_id.decode(),
                duration_s=round(time.perf_counter() - began, 6),
                bytes=size,
                user=scope["state"].get("user"),
                client=(scope.get("client") or (None,))[0],
            )
            access_log.info("%s", access, extra={"access": access})


def _of_client(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ACCEPTABLE.fullmatch(value):
            return bytes(value)
    return None
