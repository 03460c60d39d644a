"""Answers of unknown length for clients that do not know chunks: HTTP/1.0, which old proxies still speak.

Such an answer ends with the connection (RFC 9112, section 6.3). uvicorn sends chunks to everyone.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_ENDLESS = 1 << 62


class CloseDelimited:
    """Stands in for ``send`` of one request's cycle, which it makes believe that the length is known."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._is_unknown = False

    async def __call__(self, message: Any) -> None:
        """Send on."""
        cycle = self._cycle
        if message["type"] == "http.response.start":
            self._is_unknown = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if self._is_unknown:
                cycle.chunked_encoding = False
        elif self._is_unknown:
            is_last = not message.get("more_body", False)
            cycle.expected_content_length = len(message.get("body", b"")) if is_last else _ENDLESS
        await self._send(message)
