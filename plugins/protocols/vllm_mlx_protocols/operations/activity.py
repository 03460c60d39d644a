"""Requests that have not ended, as clients see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from vllm_mlx_core.api import ActiveRequest

CacheHit: TypeAlias = Literal["exact", "prefix", "miss"]


class RequestStatus(msgspec.Struct, kw_only=True):
    """One request. Null is what is not known before its first token."""

    request_id: str
    trace_id: str | None
    model: str
    phase: Literal["queued", "prefill", "generation"]
    age_s: float
    tokens_per_second: float | None
    ttft_s: float | None
    progress: float
    cache_hit_type: CacheHit | None
    cached_tokens: int
    prompt_tokens: int
    generated_tokens: int
    max_tokens: int
    n: int


def visible(requests: Iterable[ActiveRequest], user: str | None) -> list[ActiveRequest]:
    """Return the requests that a caller may see: its own, or all if the server knows no users."""
    return [request for request in requests if user in (None, request.user)]


def to_request(request: ActiveRequest) -> RequestStatus:
    """Return one request's entry. Pure."""
    return RequestStatus(
        request_id=request.request_id,
        trace_id=request.trace_id,
        model=request.model,
        phase=request.phase,
        age_s=round(request.age_s, 3),
        tokens_per_second=_speed(request),
        ttft_s=None if request.first_token_s is None else round(request.first_token_s, 4),
        progress=round(min(1.0, request.generated_tokens / max(1, request.n * request.max_tokens)), 4),
        cache_hit_type=None if request.first_token_s is None else _hit(request),
        cached_tokens=request.cached_tokens,
        prompt_tokens=request.prompt_tokens,
        generated_tokens=request.generated_tokens,
        max_tokens=request.max_tokens,
        n=request.n,
    )


def _speed(request: ActiveRequest) -> float | None:
    """Return tokens per second since the first token, which the prompt's reading gave, of all completions together."""
    if request.first_token_s is None:
        return None
    elapsed = request.age_s - request.first_token_s
    later = request.generated_tokens - request.n
    return round(later / elapsed, 2) if elapsed > 0 and later > 0 else None


def _hit(request: ActiveRequest) -> CacheHit:
    """Say how much came from the cache. At least one token of a prompt is always computed."""
    if request.cached_tokens == 0:
        return "miss"
    return "exact" if request.cached_tokens >= request.prompt_tokens - 1 else "prefix"
