"""How often one client may ask: a key if the server has keys, else an address."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx_core.api import RateLimited

from .health import is_health

PERIOD_S = 60.0
MAX_CLIENTS = 65_536
"""Most clients to remember. Beyond, the one that has been quiet for longest starts afresh."""
TRY_AGAIN_LATER = 1013
"""The code that closes a websocket."""


class Meter:
    """Counts requests by client: ``limit`` at once, then one whenever a ``limit``-th of a minute has passed.

    Of each client one number is kept: when its allowance will be whole again. A client whose time has come is like one
    that was never seen, and is forgotten.
    """

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = PERIOD_S / limit
        self._clock = clock
        self._whole_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._whole_at)

    def count(self, client: str) -> int:
        """Count one request. Return 0, or in how many seconds the next may come; a refused request does not count."""
        now = self._clock()
        self._forget(now)
        whole_at = max(self._whole_at.get(client, now), now) + self._interval
        late = whole_at - now - PERIOD_S
        if late > 1e-6:  # sums of intervals are not exact
            return math.ceil(late)
        self._whole_at[client] = whole_at
        self._whole_at.move_to_end(client)
        if len(self._whole_at) > MAX_CLIENTS:
            self._whole_at.popitem(last=False)
        return 0

    def _forget(self, now: float) -> None:
        """Drop who has been quiet: whoever asked last is at the end, and a minute later its allowance is whole."""
        while self._whole_at and next(iter(self._whole_at.values())) <= now:
            self._whole_at.popitem(last=False)


class RateLimit:
    """Refuses requests beyond ``limit`` per minute and client. ``/health`` is free. Stands inside of Auth."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._meter = Meter(limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or raise RateLimited."""
        if scope["type"] != "lifespan" and not is_health(scope):
            wait_s = self._meter.count(_client(scope))
            if wait_s:
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
                    return
                raise RateLimited(
                    f"This server accepts {self._limit} requests per minute from each client: "
                    f"try again in {wait_s} seconds.",
                    code="rate_limit_exceeded",
                    retry_after_s=wait_s,
                )
        await self._app(scope, receive, send)


def _client(scope: Scope) -> str:
    user = scope.get("state", {}).get("user")
    if user is not None:
        return f"user {user}"
    return f"address {_network((scope.get('client') or ('',))[0])}"


def _network(address: str) -> str:
    """Return whom an address belongs to: of IPv6 everyone has a network of 64 bits to choose from."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address  # a Unix socket has none
    if parsed.version == 4 or parsed.ipv4_mapped:
        return str(parsed)
    return str(ipaddress.IPv6Network((int(parsed), 64), strict=False))
