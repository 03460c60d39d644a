"""Prometheus metrics: what requests and steps add up to, joined with what the engines say when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from vllm_mlx_core.api import ModelStats, RequestSummary, StepStats

from . import catalog
from .scrape import Scrape

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""Always: in the newer format the library would write an underscore for the colon of a name."""
ABORTS = ("RequestCancelled", "RequestTimedOut")
"""Errors of requests that were ended from outside."""


class Metrics:
    """One server's metrics. Event-loop thread only.

    The labels are the served models, finish reasons and error classes: nothing that a client sends becomes one.
    """

    def __init__(self, models: Iterable[str]) -> None:
        """Make all metrics; those of ``models`` are there from the start, so that rates can be told from the first."""
        self._registry = registry = CollectorRegistry()
        self._counters = {
            each.name: Counter(
                each.name, each.help, [catalog.MODEL, *([each.label] if each.label else [])], registry=registry
            )
            for each in catalog.COUNTED
        }
        self._histograms = {
            each.name: Histogram(each.name, each.help, [catalog.MODEL], buckets=each.buckets, registry=registry)
            for each in catalog.DISTRIBUTED
        }
        for model in models:
            for counter in catalog.COUNTED:
                if counter.label is None:
                    self._count(counter.name, model, 0)
            for reason in catalog.FINISH_REASONS:
                self._count("vllm:request_success", model, 0, reason)
            for histogram in catalog.DISTRIBUTED:
                self._histograms[histogram.name].labels(model)

    def step_finished(self, stats: StepStats) -> None:
        """Take in an engine step. Mutates. One without tokens only answered a question."""
        model, tokens = stats.model, stats.prefilled_tokens + stats.generated_tokens
        if tokens == 0:
            return
        self._count("vllm:generation_tokens", model, stats.generated_tokens)
        self._count("vllm_mlx:prefilled_tokens", model, stats.prefilled_tokens)
        self._observe("vllm:iteration_tokens_total", model, tokens)
        self._observe("vllm_mlx:step_time_seconds", model, stats.step_s)

    def request_finished(self, summary: RequestSummary) -> None:
        """Take in a request: of one that failed, the phases that it got through. Mutates."""
        model, usage = summary.model, summary.usage
        for reason in summary.finish_reasons:
            self._count("vllm:request_success", model, 1, "stop" if reason == "tool_calls" else reason)
        self._count("vllm_mlx:invalid_tool_calls", model, summary.invalid_tool_calls)
        if summary.queued_s is not None:
            self._observe("vllm:request_queue_time_seconds", model, summary.queued_s)
        if summary.first_token_s is not None:
            self._count("vllm:prompt_tokens", model, usage.prompt_tokens)
            self._observe("vllm:time_to_first_token_seconds", model, summary.first_token_s)
            self._observe("vllm:request_prefill_time_seconds", model, summary.first_token_s - (summary.queued_s or 0))
        if summary.error is None:
            self._ended_well(summary)
        else:
            self._count("vllm:request_success", model, 1, "abort" if summary.error in ABORTS else "error")
            self._count("vllm_mlx:failed_requests", model, 1, summary.error)

    def exposition(self, stats: Sequence[ModelStats], health: Mapping[str, bool]) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(Scrape(self._registry, stats, health))

    def _ended_well(self, summary: RequestSummary) -> None:
        model, usage = summary.model, summary.usage
        self._count("vllm:prefix_cache_queries", model, usage.prompt_tokens)
        self._count("vllm:prefix_cache_hits", model, usage.cached_tokens)
        self._count("vllm_mlx:reasoning_tokens", model, usage.reasoning_tokens)
        self._observe("vllm:e2e_request_latency_seconds", model, summary.total_s)
        self._observe("vllm:request_prompt_tokens", model, usage.prompt_tokens)
        self._observe("vllm:request_generation_tokens", model, usage.completion_tokens)
        if summary.first_token_s is None:
            return
        decode_s = summary.total_s - summary.first_token_s
        self._observe("vllm:request_decode_time_seconds", model, decode_s)
        completions = len(summary.finish_reasons)
        later = usage.completion_tokens - completions
        if later > 0:  # the completions of a request are generated side by side
            self._observe("vllm:request_time_per_output_token_seconds", model, decode_s * completions / later)

    def _count(self, name: str, model: str, amount: float, *labels: str) -> None:
        self._counters[name].labels(model, *labels).inc(amount)

    def _observe(self, name: str, model: str, value: float) -> None:
        self._histograms[name].labels(model).observe(value)
