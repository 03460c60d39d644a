"""Every metric there is: its name, what it says, and, for what is asked of the engines, where it is read.

Names that start with ``vllm:`` mean what they mean in vLLM, so that its dashboards work. ``vllm_mlx:`` are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from vllm_mlx_core.api import CacheStats, ModelStats

MODEL = "model_name"
"""The label that every metric has. Its values are the names of the served models."""

FINISH_REASONS = ("stop", "length", "abort", "error")
"""Values of the label ``finished_reason``."""

# Buckets are those of vLLM.
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))


class Counted(NamedTuple):
    """A counter that requests and steps feed. ``_total`` is added to its name."""

    name: str
    help: str
    label: str | None = None


class Distributed(NamedTuple):
    """A histogram that requests and steps feed."""

    name: str
    help: str
    buckets: Sequence[float]


class Scraped(NamedTuple):
    """A metric that is read from a model's figures whenever somebody asks. None: there is nothing to say."""

    name: str
    help: str
    kind: Literal["gauge", "counter"]
    read: Callable[[ModelStats], float | None]


class Told(NamedTuple):
    """A gauge that the engines' own health report feeds."""

    name: str
    help: str


Metric: TypeAlias = Counted | Distributed | Scraped | Told


def kind_of(metric: Metric) -> Literal["counter", "gauge", "histogram"]:
    """Return the type that Prometheus knows a metric as."""
    match metric:
        case Counted():
            return "counter"
        case Distributed():
            return "histogram"
        case Scraped():
            return metric.kind
        case Told():
            return "gauge"


def exposed_name(metric: Metric) -> str:
    """Return the name under which a metric is found."""
    return f"{metric.name}_total" if kind_of(metric) == "counter" else metric.name


def _cache(read: Callable[[CacheStats], float]) -> Callable[[ModelStats], float | None]:
    return lambda stats: None if stats.cache is None else read(stats.cache)


COUNTED = (
    Counted("vllm:prompt_tokens", "Tokens of prompts that were read, those from the prefix cache included."),
    Counted("vllm:generation_tokens", "Generated tokens."),
    Counted("vllm:request_success", "Completions that ended, and requests that did not come to it.", "finished_reason"),
    Counted("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache, of requests that ended well."),
    Counted("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache, of requests that ended well."),
    Counted("vllm_mlx:prefilled_tokens", "Prompt tokens that were computed, so not those from the prefix cache."),
    Counted("vllm_mlx:reasoning_tokens", "Generated tokens that were reasoning, of requests that ended well."),
    Counted("vllm_mlx:invalid_tool_calls", "Tool calls that did not fit what was declared."),
    Counted("vllm_mlx:failed_requests", "Requests that failed, by the kind of error.", "error"),
)

DISTRIBUTED = (
    Distributed("vllm:time_to_first_token_seconds", "Time from queueing to the first token.", FIRST_TOKEN_S),
    Distributed("vllm:request_time_per_output_token_seconds", "A request's mean time between tokens.", PER_TOKEN_S),
    Distributed("vllm:e2e_request_latency_seconds", "Time from queueing to the end.", REQUEST_S),
    Distributed("vllm:request_queue_time_seconds", "Time in the queue.", REQUEST_S),
    Distributed("vllm:request_prefill_time_seconds", "Time from the queue's end to the first token.", REQUEST_S),
    Distributed("vllm:request_decode_time_seconds", "Time from the first token to the end.", REQUEST_S),
    Distributed("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKENS),
    Distributed("vllm:request_generation_tokens", "Generated tokens of a request.", TOKENS),
    Distributed("vllm:iteration_tokens_total", "Tokens that an engine step read and generated.", STEP_TOKENS),
    Distributed("vllm_mlx:step_time_seconds", "Time that an engine step took.", FIRST_TOKEN_S),
)

SCRAPED = (
    Scraped("vllm:num_requests_running", "Sequences that are being computed.", "gauge", lambda s: s.running),
    Scraped("vllm:num_requests_waiting", "Sequences that wait for a place.", "gauge", lambda s: s.waiting),
    Scraped("vllm_mlx:engine_steps", "Engine steps.", "counter", lambda s: s.steps),
    Scraped("vllm_mlx:model_uptime_seconds", "Time since the model was loaded.", "gauge", lambda s: s.uptime_s),
    Scraped("vllm_mlx:weights_bytes", "Size of the model's weights.", "gauge", lambda s: s.weights_bytes),
    Scraped(
        "vllm_mlx:active_memory_bytes",
        "Memory that MLX uses, of the process.",
        "gauge",
        lambda s: s.active_memory_bytes,
    ),
    Scraped(
        "vllm_mlx:peak_memory_bytes",
        "Most memory that MLX used, of the process.",
        "gauge",
        lambda s: s.peak_memory_bytes,
    ),
    Scraped(
        "vllm_mlx:buffer_memory_bytes", "Memory that MLX keeps for reuse.", "gauge", lambda s: s.buffer_memory_bytes
    ),
    Scraped("vllm_mlx:prefix_cache_entries", "Entries of the prefix cache.", "gauge", _cache(lambda c: c.entries)),
    Scraped("vllm_mlx:prefix_cache_bytes", "Size of the prefix cache.", "gauge", _cache(lambda c: c.nbytes)),
    Scraped("vllm_mlx:prefix_cache_pinned_bytes", "Size of what is in use.", "gauge", _cache(lambda c: c.pinned_bytes)),
    Scraped("vllm_mlx:prefix_cache_max_bytes", "Largest size it may have.", "gauge", lambda s: s.cache_max_bytes),
    Scraped("vllm_mlx:prefix_cache_lookup_hits", "Look-ups that found something.", "counter", _cache(lambda c: c.hits)),
    Scraped(
        "vllm_mlx:prefix_cache_lookup_misses", "Look-ups that found nothing.", "counter", _cache(lambda c: c.misses)
    ),
    Scraped("vllm_mlx:prefix_cache_evictions", "Entries dropped for room.", "counter", _cache(lambda c: c.evictions)),
    Scraped(
        "vllm_mlx:prefix_cache_saved_tokens", "Tokens not computed again.", "counter", _cache(lambda c: c.saved_tokens)
    ),
)

HEALTHY = Told("vllm_mlx:engine_healthy", "1 if the engine is well, else 0.")

METRICS: Sequence[Metric] = (*COUNTED, *DISTRIBUTED, *SCRAPED, HEALTHY)
