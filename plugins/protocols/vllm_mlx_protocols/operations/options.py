"""What an operator can switch on: command-line options and what they mean."""

from __future__ import annotations

import argparse
from importlib import import_module
from urllib.parse import urlsplit

from vllm_mlx_core.api import MissingExtra, Settings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("monitoring")
    group.add_argument("--enable-metrics", action="store_true", help="serve Prometheus metrics at /metrics")
    group.add_argument(
        "--otel-endpoint",
        metavar="URL",
        type=_url,
        help="send a trace of every request to this OpenTelemetry collector (OTLP over HTTP); needs the extra otel",
    )


def check_options(settings: Settings) -> None:
    """Raise MissingExtra if something was switched on that is not installed."""
    if wanted_endpoint(settings) is None:
        return
    try:
        import_module(".tracing", __package__)
    except ImportError as error:
        raise MissingExtra("--otel-endpoint needs the extra otel: pip install 'vllm-mlx-core[otel]'") from error


def wants_metrics(settings: Settings) -> bool:
    """Return whether to serve metrics."""
    return bool(settings.plugin_options.get("enable_metrics"))


def wanted_endpoint(settings: Settings) -> str | None:
    """Return where to send traces, None for nowhere."""
    endpoint: str | None = settings.plugin_options.get("otel_endpoint")
    return endpoint


def _url(text: str) -> str:
    """Return the address of the traces: an address without a path is that of the collector as a whole."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"{text!r} is not an http or https address")
    return text if parts.path.strip("/") else parts._replace(path="/v1/traces").geturl()
