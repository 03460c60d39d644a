"""HTTP/1 as this server reads it: a request's head is limited in size and time, and what is no HTTP is told so in JSON.

All of this happens before the application sees anything, API keys included, so nothing here may cost much.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vllm_mlx_core.api import InvalidRequest, RequestError

from .close_delimited import CloseDelimited
from .errors import plain

MAX_HEAD_BYTES = 64 * 1024
"""Largest sum of target and headers. Clients stay below 8 KiB, proxies allow 16 or so."""
HEAD_TIMEOUT_S = 60.0
"""How long a client may take from connecting, or from a request's first byte, to the end of its headers."""


class HeadTooLarge(InvalidRequest):
    """Target and headers are longer than anyone needs."""

    status = 431


class HTTP1(HttpToolsProtocol):
    """One connection."""

    _deadline: asyncio.TimerHandle | None = None
    _head_begun = False
    _head_bytes = 0
    _refusal: RequestError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on. A head that never ends is refused while it comes: the parser keeps all of it."""
        continued = self._head_begun
        super().data_received(data)
        if continued and self._head_begun:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refusal = _too_large()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        super().on_message_begin()
        self._head_begun = True
        self._head_bytes = 0
        self._watch_head()

    def on_headers_complete(self) -> None:
        """Start the request. Raises, which the parser turns into a refusal, if its head is too large."""
        self._forget_head()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._refusal = _too_large()
            raise self._refusal
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0" and self.cycle is not None:
            self.cycle.send = CloseDelimited(self.cycle)  # type: ignore[method-assign]

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong and close; only close if that would fall into the middle of an answer."""
        cycle = self.cycle
        is_free = cycle is None or cycle.response_complete
        if not is_free and cycle.more_body and not cycle.response_started and not self.pipeline:
            cycle.disconnected = True  # its body never comes, so what is wrong is its answer
            cycle.message_event.set()
            is_free = True
        if is_free and not self.transport.is_closing():
            self.transport.write(_response(self._refusal or InvalidRequest("This is not a valid HTTP request.")))
        self.transport.close()

    def _watch_head(self) -> None:
        self._stop_clock()
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.close)

    def _forget_head(self) -> None:
        self._head_begun = False
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"The request's target and headers have more than {MAX_HEAD_BYTES:,} bytes.")


def _response(error: RequestError) -> bytes:
    body = bytes(plain(error).body)
    head = (
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
