"""A server that listens on loopback answers only to loopback names.

A web page can point a name of its own at 127.0.0.1 and then read the answers as if they were its own (DNS rebinding);
its requests carry that name in the Host header.
"""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import InvalidRequest

_NAMES = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class HostCheck:
    """Refuses requests whose Host header is not ``localhost``, ``127.0.0.1`` or ``[::1]``, with any port."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise InvalidRequest."""
        if scope["type"] != "lifespan":
            for name, value in scope["headers"]:
                if name == b"host" and _without_port(value) not in _NAMES:
                    if scope["type"] == "websocket":
                        await send({"type": "websocket.close", "code": 1008})
                        return
                    raise InvalidRequest(
                        "This server listens on loopback only and does not answer to the name in the Host header.",
                        code="host_not_allowed",
                    )
        await self._app(scope, receive, send)


def is_loopback(host: str) -> bool:
    """Return whether a listening address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.rpartition(b":")
    if colon and (port.isdigit() or not port) and not (name.startswith(b"[") and not name.endswith(b"]")):
        return name.lower()
    return host.lower()
