"""What the server does at this moment: the body of ``GET /v1/status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from vllm_mlx_core.api import ActiveRequest, ModelStats, WarmUpStats

from .activity import RequestStatus, to_request, visible
from .cache import Cache, to_cache

GB = 2**30


class Memory(msgspec.Struct, kw_only=True):
    """MLX's memory in the engine's process."""

    active_memory_gb: float
    peak_memory_gb: float
    cache_memory_gb: float


class WarmPrompts(msgspec.Struct, kw_only=True):
    """How far the reading of the prompts is that the cache is to be warm with."""

    running: bool
    entries: int
    warmed: int
    failed: int
    tokens: int
    elapsed_s: float


class Figures(msgspec.Struct, kw_only=True):
    """What is said of one model and of all together. Null is what an engine that does not answer would have to say."""

    status: Literal["running", "stopped", "not_loaded"]
    model: str | None
    uptime_s: float | None
    steps_executed: int | None
    num_running: int
    num_waiting: int
    total_requests_processed: int | None
    total_prompt_tokens: int | None
    total_completion_tokens: int | None
    metal: Memory | None
    cache: Cache | None


class ModelStatus(Figures, kw_only=True):
    """One model. ``uptime_s`` is since it was loaded. ``warm_prompts`` is null if there are none for it."""

    weights_gb: float | None
    warm_prompts: WarmPrompts | None


class Status(Figures, kw_only=True):
    """The server. ``uptime_s`` is since it started, ``model`` the default model."""

    requests: Sequence[RequestStatus]
    models: Sequence[ModelStatus]


def to_status(
    health: Mapping[str, bool],
    stats: Sequence[ModelStats],
    active: Sequence[ActiveRequest],
    *,
    user: str | None,
    uptime_s: float,
) -> Status:
    """Return the status as ``user`` may see it. Pure. ``health`` holds every model, the default one first."""
    return Status(
        status="not_loaded" if not health else _state(all(health.values())),
        model=next(iter(health), None),
        uptime_s=round(uptime_s, 3),
        requests=[to_request(request) for request in visible(active, user)],
        models=[_to_model(model, is_well, stats, active) for model, is_well in health.items()],
        **_figures(stats, active),
    )


def _to_model(model: str, is_well: bool, stats: Sequence[ModelStats], active: Sequence[ActiveRequest]) -> ModelStatus:
    mine = [each for each in stats if each.model == model]
    return ModelStatus(
        status=_state(is_well),
        model=model,
        uptime_s=round(mine[0].uptime_s, 3) if mine else None,
        weights_gb=_gigabytes(mine[0].weights_bytes) if mine else None,
        warm_prompts=_warm_prompts(mine[0].warm_up) if mine else None,
        **_figures(mine, [request for request in active if request.model == model]),
    )


def _figures(stats: Sequence[ModelStats], active: Sequence[ActiveRequest]) -> dict[str, Any]:
    """Return the fields that have the same meaning for one model and for several."""
    waiting = sum(request.phase == "queued" for request in active)
    return {
        "num_running": len(active) - waiting,
        "num_waiting": waiting,
        "steps_executed": sum(each.steps for each in stats) if stats else None,
        "total_requests_processed": sum(each.requests for each in stats) if stats else None,
        "total_prompt_tokens": sum(each.prompt_tokens for each in stats) if stats else None,
        "total_completion_tokens": sum(each.completion_tokens for each in stats) if stats else None,
        "metal": _memory(stats) if stats else None,
        "cache": to_cache(stats) if stats else None,
    }


def _warm_prompts(stats: WarmUpStats | None) -> WarmPrompts | None:
    if stats is None:
        return None
    return WarmPrompts(**msgspec.structs.asdict(stats) | {"elapsed_s": round(stats.elapsed_s, 3)})


def _memory(stats: Sequence[ModelStats]) -> Memory:
    """Return the memory of the process. Every model of a process reports the whole of it, so nothing is added up."""
    return Memory(
        active_memory_gb=_gigabytes(max(each.active_memory_bytes for each in stats)),
        peak_memory_gb=_gigabytes(max(each.peak_memory_bytes for each in stats)),
        cache_memory_gb=_gigabytes(max(each.buffer_memory_bytes for each in stats)),
    )


def _state(is_well: bool) -> Literal["running", "stopped"]:
    return "running" if is_well else "stopped"


def _gigabytes(nbytes: int) -> float:
    return round(nbytes / GB, 4)
