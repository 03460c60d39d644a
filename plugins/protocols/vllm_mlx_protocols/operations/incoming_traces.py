"""The traces that clients' requests belong to: W3C Trace Context, the header ``traceparent``."""

from __future__ import annotations

from collections import OrderedDict

from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

MAX_REQUESTS = 4096
"""How many are remembered; a background request may end long after its client was answered."""
_HEADERS = (b"traceparent", b"tracestate")


class IncomingTraces:
    """Remembers which trace each HTTP request belongs to, by its X-Request-Id. Event-loop thread only."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[str, Context] = OrderedDict()
        self._propagator = TraceContextTextMapPropagator()

    def note(self, request_id: str, scope: Scope) -> None:
        """Remember what a request's headers say, if they say something."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        if "traceparent" not in carrier:
            return
        self._contexts[request_id] = self._propagator.extract(carrier, Context())
        if len(self._contexts) > MAX_REQUESTS:
            self._contexts.popitem(last=False)

    def parent(self, request_id: str | None) -> Context:
        """Return the context that a request's span belongs into: an empty one begins a trace."""
        return Context() if request_id is None else self._contexts.get(request_id, Context())


class NoteTraces:
    """Middleware that tells ``traces`` of every HTTP request."""

    def __init__(self, app: ASGIApp, traces: IncomingTraces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            self._traces.note(scope["state"]["request_id"], scope)
        await self._app(scope, receive, send)
