"""Who a request is: the id that its client or the server gave it, and its line in the access log."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

access_log = logging.getLogger("vllm_mlx_core.server.access")

_ACCEPTABLE = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestId:
    """Puts ``request_id`` into the request's state and ``X-Request-Id`` on the response.

    A client's own id is kept if it is at most 128 letters, digits and ``. _ : -``, else a new one is made. When the
    request is over, one line with method, path, status, id and seconds goes to the access log: no query, no body.
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
        status = 0
        began = time.perf_counter()

        async def identify(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, identify)
        finally:
            path = scope.get("raw_path", b"").partition(b"?")[0].decode("ascii", "backslashreplace")
            seconds = time.perf_counter() - began
            access_log.info("%s %s %d %s %.3fs", scope["method"], path, status, request_id.decode(), seconds)


def _of_client(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ACCEPTABLE.fullmatch(value):
            return bytes(value)
    return None
