"""OpenTelemetry: one trace for each request, made when it is over. Imported only if traces are wanted."""

from __future__ import annotations

import time
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from vllm_mlx_core.api import RequestSummary

from .incoming_traces import IncomingTraces

SERVICE = "vllm-mlx"
EXPORT_TIMEOUT_S = 5.0
"""How long a collector may take. It also bounds how long a stop waits for one that is away."""
_NS = 1_000_000_000


class Tracing:
    """Makes spans of requests and hands them to a processor. Event-loop thread, but for ``close``.

    The span ``request`` has up to three children, which follow one another: ``queue``, ``prefill`` and ``decode``. None
    holds any text of prompt or answer. ``incoming`` knows the traces that the requests belong to.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        self.incoming = IncomingTraces()
        ours = Resource.create({SERVICE_NAME: SERVICE, SERVICE_VERSION: version("vllm-mlx-core")})
        resource = ours.merge(OTELResourceDetector().detect())  # what the operator says in the environment wins
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("vllm_mlx")

    @classmethod
    def to(cls, endpoint: str) -> Tracing:
        """Return one that sends to a collector in batches, from a thread of its own."""
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=EXPORT_TIMEOUT_S)))

    def request_finished(self, summary: RequestSummary) -> None:
        """Make the spans of a request that ends now."""
        end = time.time_ns()
        start = end - _ns(summary.total_s)
        outside = self.incoming.parent(summary.trace_id)
        span = self._tracer.start_span(
            "request", outside, kind=SpanKind.SERVER, attributes=_attributes(summary), start_time=start
        )
        parent = set_span_in_context(span, Context())
        taken_up = end if summary.queued_s is None else start + _ns(summary.queued_s)
        first = end if summary.first_token_s is None else start + _ns(summary.first_token_s)
        self._phase("queue", parent, start, taken_up)
        if summary.queued_s is not None:
            self._phase("prefill", parent, taken_up, first)
        if summary.first_token_s is not None:
            self._phase("decode", parent, first, end)
        if summary.error is not None:
            span.set_status(StatusCode.ERROR)
        span.end(end)

    def close(self) -> None:
        """Send what is left and stop. Blocks."""
        self._provider.shutdown()

    def _phase(self, name: str, parent: Context, start: int, end: int) -> None:
        self._tracer.start_span(name, parent, start_time=start).end(end)


def _attributes(summary: RequestSummary) -> dict[str, AttributeValue]:
    """Return what is said of a request, under OpenTelemetry's names where it has some."""
    usage = summary.usage
    attributes: dict[str, AttributeValue] = {
        "gen_ai.response.id": summary.request_id,
        "gen_ai.response.model": summary.model,
        "gen_ai.response.finish_reasons": tuple(summary.finish_reasons),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "vllm_mlx.usage.reasoning_tokens": usage.reasoning_tokens,
    }
    if summary.trace_id is not None:
        attributes["http.request.header.x-request-id"] = (summary.trace_id,)
    if summary.error is not None:
        attributes["error.type"] = summary.error
    return attributes


def _ns(seconds: float) -> int:
    return round(seconds * _NS)
