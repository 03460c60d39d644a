from __future__ import annotations

import builtins
import sys
from argparse import ArgumentError, ArgumentParser

import msgspec
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from vllm_mlx_core.api import MissingExtra, RequestSummary, Settings, Usage
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect
from vllm_mlx_protocols.operations.frontend import OperationsFrontend
from vllm_mlx_protocols.operations.options import add_options, check_options
from vllm_mlx_protocols.operations.tracing import Tracing

DONE = RequestSummary(
    request_id="r1",
    trace_id="t1",
    model="scripted/model",
    user="alice",
    usage=Usage(prompt_tokens=10, completion_tokens=9, cached_tokens=4, reasoning_tokens=3),
    finish_reasons=("stop", "length"),
    queued_s=0.5,
    first_token_s=2.0,
    total_s=10.0,
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def traced(summary):
    """Return the spans of a request by name."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(exporter))
    tracing.request_finished(summary)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    tracing.close()
    return spans


def test_the_phases_follow_one_another_under_the_request():
    spans = traced(DONE)
    assert set(spans) == {"request", "queue", "prefill", "decode"}
    request = spans["request"]
    assert (request.kind, request.parent) == (SpanKind.SERVER, None)
    lengths = {name: (span.end_time - span.start_time) / 1e9 for name, span in spans.items()}
    assert lengths == {"request": 10.0, "queue": 0.5, "prefill": 1.5, "decode": 8.0}
    assert spans["queue"].start_time == request.start_time
    assert spans["prefill"].start_time == spans["queue"].end_time
    assert spans["decode"].start_time == spans["prefill"].end_time
    assert spans["decode"].end_time == request.end_time
    for name in ("queue", "prefill", "decode"):
        assert spans[name].parent.span_id == request.context.span_id
        assert spans[name].context.trace_id == request.context.trace_id


def test_the_request_tells_its_figures_and_nobodys_name():
    request = traced(DONE)["request"]
    assert dict(request.attributes) == {
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "scripted/model",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "vllm_mlx.usage.reasoning_tokens": 3,
        "http.request.header.x-request-id": ("t1",),
    }
    assert request.status.status_code is StatusCode.UNSET
    assert request.resource.attributes["service.name"] == "vllm-mlx"


def test_the_operator_may_name_the_service(monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert traced(DONE)["request"].resource.attributes["service.name"] == "mine"


@pytest.mark.parametrize(
    ("queued_s", "first_token_s", "phases"),
    [
        (None, None, {"queue"}),
        (0.5, None, {"queue", "prefill"}),
        (0.5, 2.0, {"queue", "prefill", "decode"}),
    ],
)
def test_a_request_that_failed_has_the_phases_that_it_reached(queued_s, first_token_s, phases):
    spans = traced(
        msgspec.structs.replace(
            DONE, queued_s=queued_s, first_token_s=first_token_s, error="EngineFailed", finish_reasons=(), trace_id=None
        )
    )
    request = spans.pop("request")
    assert set(spans) == phases
    assert max(span.end_time for span in spans.values()) == request.end_time
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes["error.type"] == "EngineFailed"
    assert "http.request.header.x-request-id" not in request.attributes


class Kept(SpanExporter):
    """Takes what is exported, and notes its shutdown."""

    def __init__(self, endpoint, timeout):
        self.endpoint, self.spans, self.ended = endpoint, [], False
        made.append(self)

    def export(self, spans):
        self.spans += spans
        return SpanExportResult.SUCCESS

    def shutdown(self):
        self.ended = True


made: list[Kept] = []


@pytest.mark.anyio
async def test_a_server_sends_its_last_spans_when_it_stops(monkeypatch):
    monkeypatch.setattr("vllm_mlx_protocols.operations.tracing.OTLPSpanExporter", Kept)
    made.clear()
    engine = ScriptedEngine()
    settings = Settings(plugin_options={"otel_endpoint": "http://collector/v1/traces"})
    frontend = OperationsFrontend(engine, settings)
    app = assemble(engine, [frontend], settings)
    async with app.router.lifespan_context(app):
        frontend.vllm_mlx_request_finished(DONE)
    (exporter,) = made
    assert exporter.endpoint == "http://collector/v1/traces"
    assert {span.name for span in exporter.spans} == {"request", "queue", "prefill", "decode"}
    assert exporter.ended


@pytest.mark.anyio
async def test_a_trace_goes_on_where_the_clients_left_it(monkeypatch):
    monkeypatch.setattr("vllm_mlx_protocols.operations.tracing.OTLPSpanExporter", Kept)
    made.clear()
    engine = ScriptedEngine()
    settings = Settings(plugin_options={"otel_endpoint": "http://collector/v1/traces"})
    frontend = OperationsFrontend(engine, settings)
    app = assemble(engine, [frontend], settings, mount=frontend.vllm_mlx_mount)
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"t1": f"00-{trace}-{span}-01", "t2": "nonsense", "t3": f"00-{trace}-{span}-00"}
    async with app.router.lifespan_context(app), connect(app) as client:
        for request_id, parent in headers.items():
            await client.get("/ready", headers={"x-request-id": request_id, "traceparent": parent})
            frontend.vllm_mlx_request_finished(msgspec.structs.replace(DONE, trace_id=request_id))
    first, second = (each for each in made[0].spans if each.name == "request")
    assert (f"{first.parent.trace_id:032x}", f"{first.parent.span_id:016x}") == (trace, span)
    assert second.parent is None, "what cannot be read begins a trace, and what is not sampled elsewhere is not here"


def parse(*arguments):
    parser = ArgumentParser(exit_on_error=False)
    add_options(parser)
    return parser.parse_args(arguments)


def test_nothing_is_on_unless_it_is_asked_for():
    options = parse()
    assert (options.enable_metrics, options.otel_endpoint) == (False, None)
    check_options(Settings(plugin_options=vars(options)))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("http://collector/otlp/v1/traces", "http://collector/otlp/v1/traces"),
        ("http://collector?x=1", "http://collector/v1/traces?x=1"),
    ],
)
def test_an_address_without_a_path_is_that_of_the_collector(given, meant):
    assert parse("--otel-endpoint", given).otel_endpoint == meant


@pytest.mark.parametrize(
    "bad", ["", "localhost:4318", "ftp://x", "http://", "http://x:99999", "http://[x", "http://x:0"]
)
def test_what_is_no_address_is_refused(bad):
    with pytest.raises(ArgumentError, match="not an http or https address"):
        parse("--otel-endpoint", bad)


def test_a_missing_extra_is_named_before_a_model_is_loaded(monkeypatch):
    for name in list(sys.modules):
        if name.startswith("opentelemetry") or name == "vllm_mlx_protocols.operations.tracing":
            monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *arguments):
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    check_options(Settings())
    with pytest.raises(MissingExtra, match="otel"):
        check_options(Settings(plugin_options={"otel_endpoint": "http://collector/v1/traces"}))
