"""Work that is worth doing only while the client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
"""ASGI's ``receive``."""


class ClientDisconnected(Exception):
    """The client closed the connection before its answer was complete: nobody is left to be told."""


async def or_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` returns, or cancel it and raise ClientDisconnected when the client goes first.

    The request's body must have been read. Whatever happens, ``work`` has ended when this returns or raises.
    """
    running = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise ClientDisconnected
    finally:
        running.cancel()
        gone.cancel()
        await asyncio.gather(running, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
