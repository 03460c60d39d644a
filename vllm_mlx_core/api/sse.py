"""Server-sent events: one request's outputs become a response that the client reads as they come.

``EventStream`` is an ASGI application and needs no web framework. To return one from a FastAPI route, wrap it in a
``starlette.responses.Response`` whose ``__call__`` awaits it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

from .disconnect import ClientDisconnected, Receive, or_disconnect
from .errors import EngineFailed, Overloaded, RequestError
from .messages import Output
from .protocols import OutputStream

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""ASGI's ``send``."""

KEEP_ALIVE_S = 10.0
"""Longest silence on a stream, in seconds: clients and proxies give up after 15 or more."""

SSE = "text/event-stream; charset=utf-8"
"""The content type of server-sent events."""

log = logging.getLogger(__name__)


class StreamEncoder(Protocol):
    """Turns outputs into a protocol's events, as bytes that go out as they are. One per request; mutates itself.

    ``feed`` runs once per engine step, so it is the place to be quick: several events go into one piece of bytes, and
    no bytes mean that nothing is sent.
    """

    def start(self) -> bytes:
        """Return what goes out before the first output."""
        ...

    def feed(self, outputs: Sequence[Output]) -> bytes:
        """Return the events of what one step added."""
        ...

    def finish(self) -> bytes:
        """Return the terminal events of a stream that went well. Raises RequestError if it cannot have."""
        ...

    def error(self, error: RequestError) -> bytes:
        """Return the terminal events of a stream that failed. Works at any time."""
        ...

    def keep_alive(self) -> bytes:
        """Return what says that the server is alive and that clients skip; no bytes if the protocol knows none."""
        ...


class EventStream:
    """Sends one request's events and closes its outputs, however it ends.

    Headers go out at once, keep-alives whenever nothing went out for ``keep_alive_s`` seconds, and nothing after the
    terminal event. A client that leaves is noticed within a step. A failure midway becomes the encoder's error event.
    ``content_type`` is for protocols whose events are framed in another way.
    """

    def __init__(
        self,
        outputs: OutputStream,
        encoder: StreamEncoder,
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        content_type: str = SSE,
    ) -> None:
        self._outputs = outputs
        self._encoder = encoder
        self._keep_alive_s = keep_alive_s
        self._headers = [(b"content-type", content_type.encode("latin-1")), *_HEADERS]
        self._request_id: str | None = None

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer the request."""
        self._request_id = scope.get("state", {}).get("request_id")
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await or_disconnect(receive, self._run(send))
        except ClientDisconnected:
            pass
        except asyncio.CancelledError:
            await send(_body(self._error(Overloaded("The server is shutting down.")), more=False))
            raise
        finally:
            await self._outputs.aclose()

    async def _run(self, send: Send) -> None:
        pulse = _Pulse(send, self._encoder.keep_alive(), self._keep_alive_s)
        try:
            last = await self._send_all(send, pulse)
        except RequestError as error:
            last = self._error(error)
        except Exception:
            log.exception("A stream failed")
            last = self._error(EngineFailed("The server failed on this request."))
        finally:
            pulse.stop()
        await send(_body(last, more=False))

    def _error(self, error: RequestError) -> bytes:
        error.request_id = self._request_id
        return self._encoder.error(error)

    async def _send_all(self, send: Send, pulse: _Pulse) -> bytes:
        encode = self._encoder.feed
        if first := self._encoder.start():
            await send(_body(first))
        async for outputs in self._outputs:
            if data := encode(outputs):
                pulse.touch()
                await send({"type": "http.response.body", "body": data, "more_body": True})
        return self._encoder.finish()


class _Pulse:
    """Sends ``beat``, unless it is empty, whenever nothing was sent for ``interval_s``. One timer for all events."""

    def __init__(self, send: Send, beat: bytes, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._send = send
        self._beat = beat
        self._interval_s = interval_s
        self._loop = loop
        self._clock = loop.time
        self._last = loop.time()
        self._timer = loop.call_at(self._last + interval_s, self._check)
        self._writing: asyncio.Task[None] | None = None

    def touch(self) -> None:
        """Note that something is being sent."""
        self._last = self._clock()

    def stop(self) -> None:
        """Send no more."""
        self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()

    def _check(self) -> None:
        now = self._clock()
        due = self._last + self._interval_s
        if now + 1e-3 >= due:  # timers may fire a clock tick early
            idle = self._writing is None or self._writing.done()  # else the client does not even read the last beat
            if self._beat and idle:
                self._writing = self._loop.create_task(self._write())
            self._last = now
            due = now + self._interval_s
        self._timer = self._loop.call_at(due, self._check)

    async def _write(self) -> None:
        await self._send(_body(self._beat))


def _body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
)
