"""API keys: every request needs one but GET and HEAD of ``/health``, whatever its path looks like."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import AuthenticationFailed

POLICY_VIOLATION = 1008
"""The code that closes a websocket."""


class Auth:
    """Asks for ``Authorization: Bearer KEY`` or ``x-api-key: KEY``; without keys it lets everyone in.

    It stands before routing, so a path that no route knows needs a key as well and no spelling of a path gets around
    it. Sets ``user`` in the request's state to the number of the key (``key-1``), never the key itself.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise AuthenticationFailed."""
        if self._digests and scope["type"] != "lifespan" and not _is_health(scope):
            number = self._match(_credentials(scope["headers"]))
            if number is None:
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": POLICY_VIOLATION})
                    return
                raise AuthenticationFailed(
                    "Wrong or missing API key: send it as Authorization: Bearer KEY.", code="invalid_api_key"
                )
            scope.setdefault("state", {})["user"] = f"key-{number}"
        await self._app(scope, receive, send)

    def _match(self, credentials: Iterable[bytes]) -> int | None:
        """Return the number of the key that was presented, in time that does not depend on which one it is."""
        found = None
        for credential in credentials:
            presented = _digest(credential)
            for number, digest in enumerate(self._digests, 1):
                if hmac.compare_digest(presented, digest):
                    found = number
        return found


def _is_health(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["path"] == "/health" and scope["method"] in ("GET", "HEAD")


def _credentials(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, credential = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield credential.strip()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
