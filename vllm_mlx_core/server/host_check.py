"""A server that listens on loopback answers only to loopback names, and to those that the operator allows.

A web page can point a name of its own at 127.0.0.1 and then read the answers as if they were its own (DNS rebinding);
its requests carry that name in the Host header.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import InvalidRequest, Settings

_NAMES = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class HostCheck:
    """Refuses requests whose Host header is not ``localhost``, ``127.0.0.1``, ``[::1]`` or allowed, with any port."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        self._app = app
        self._names = _NAMES | {name.lower().encode() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise InvalidRequest."""
        if scope["type"] != "lifespan":
            for name, value in scope["headers"]:
                if name == b"host" and _without_port(value) not in self._names:
                    if scope["type"] == "websocket":
                        await send({"type": "websocket.close", "code": 1008})
                        return
                    raise InvalidRequest(
                        "This server does not answer to the name in the Host header; --allowed-host allows it.",
                        code="host_not_allowed",
                    )
        await self._app(scope, receive, send)


def wanted(settings: Settings) -> bool:
    """Return whether a server needs the check: no web page reaches a Unix socket, and a network knows many names."""
    return bool(settings.allowed_hosts) or (settings.uds is None and is_loopback(settings.host))


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
