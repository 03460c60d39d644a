"""API keys: every request needs one but GET and HEAD of ``/health``, whatever its path looks like."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import ApiKey, AuthenticationFailed

from .health import is_health

POLICY_VIOLATION = 1008
"""The code that closes a websocket."""


class Auth:
    """Asks for ``Authorization: Bearer KEY`` or ``x-api-key: KEY``; without keys it lets everyone in.

    It stands before routing, so a path that no route knows needs a key as well and no spelling of a path gets around
    it. Sets ``user`` in the request's state to the name of the key, or its number (``key-1``) if it has none.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str | ApiKey]) -> None:
        self._app = app
        named = [key if isinstance(key, ApiKey) else ApiKey(key) for key in keys]
        self._digests = [_digest(key.key.encode()) for key in named]
        self._users = [key.user(number) for number, key in enumerate(named, 1)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise AuthenticationFailed."""
        if self._digests and scope["type"] != "lifespan" and not is_health(scope):
            user = self._match(_credentials(scope["headers"]))
            if user is None:
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": POLICY_VIOLATION})
                    return
                raise AuthenticationFailed(
                    "Wrong or missing API key: send it as Authorization: Bearer KEY.", code="invalid_api_key"
                )
            scope.setdefault("state", {})["user"] = user
        await self._app(scope, receive, send)

    def _match(self, credentials: Iterable[bytes]) -> str | None:
        """Return whose key was presented, in time that does not depend on which one it is."""
        found = None
        for credential in credentials:
            presented = _digest(credential)
            for user, digest in zip(self._users, self._digests, strict=True):
                if hmac.compare_digest(presented, digest):
                    found = user
        return found


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
