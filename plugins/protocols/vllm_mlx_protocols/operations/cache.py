"""What the prefix caches hold and did, as clients see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from vllm_mlx_core.api import FIRST_MEDIA_ID, CacheMiss, CacheStats, ModelStats

MB = 2**20


class Cache(msgspec.Struct, kw_only=True):
    """One or several prefix caches together. ``hit_rate`` is of the look-ups, null before the first."""

    type: str
    entries: int
    hit_rate: float | None
    memory_mb: float
    max_memory_mb: float | None
    pinned_mb: float
    hits: int
    misses: int
    evictions: int
    tokens_saved: int
    stored_mb: float
    tokens_fetched: int
    unstored_parts: int


class Token(msgspec.Struct, kw_only=True):
    """A token and the text it stands for: none if it stands for a piece of an image or the like."""

    id: int
    text: str


class Miss(msgspec.Struct, kw_only=True):
    """Why a prompt found nothing: where it differs from the nearest entry, and in what."""

    reason: str
    prompt_tokens: int
    position: int | None
    prompt_token: Token | None
    cached_token: Token | None
    nearest_tokens: int | None


class ModelCache(Cache, kw_only=True):
    """One model's prefix cache, and why the latest look-up that found nothing found nothing."""

    last_miss: Miss | None


class CacheReport(msgspec.Struct, kw_only=True):
    """The body of ``GET /v1/cache/stats``."""

    cache: Cache
    models: Mapping[str, ModelCache]


class Cleared(msgspec.Struct, kw_only=True):
    """The body of the answer to a clearing."""

    status: Literal["cleared"] = "cleared"
    freed_mb: float
    models: Mapping[str, float]
    rewarm_scheduled: bool


def to_cache(stats: Sequence[ModelStats]) -> Cache:
    """Return the sum of the caches. Pure. A model that keeps nothing has an empty one."""
    caches = [each.cache or CacheStats() for each in stats]
    hits = sum(cache.hits for cache in caches)
    misses = sum(cache.misses for cache in caches)
    limits = [each.cache_max_bytes for each in stats]
    known = [limit for limit in limits if limit is not None]
    return Cache(
        type=", ".join(dict.fromkeys(each.cache_policy for each in stats)),
        entries=sum(cache.entries for cache in caches),
        hit_rate=round(hits / (hits + misses), 4) if hits + misses else None,
        memory_mb=megabytes(sum(cache.nbytes for cache in caches)),
        max_memory_mb=megabytes(sum(known)) if len(known) == len(limits) else None,
        pinned_mb=megabytes(sum(cache.pinned_bytes for cache in caches)),
        hits=hits,
        misses=misses,
        evictions=sum(cache.evictions for cache in caches),
        tokens_saved=sum(cache.saved_tokens for cache in caches),
        stored_mb=megabytes(sum(cache.stored_bytes for cache in caches)),
        tokens_fetched=sum(cache.fetched_tokens for cache in caches),
        unstored_parts=sum(cache.unstored_parts for cache in caches),
    )


def to_report(stats: Sequence[ModelStats], text_of: Callable[[str, int], str]) -> CacheReport:
    """Return the caches together and each by itself; ``text_of`` says what a model's token stands for."""
    return CacheReport(cache=to_cache(stats), models={each.model: _to_model_cache(each, text_of) for each in stats})


def to_cleared(freed: Mapping[str, int], *, rewarm: bool) -> Cleared:
    """Return what was freed, by model, and whether what is to be warm is read again. Pure."""
    return Cleared(
        freed_mb=megabytes(sum(freed.values())),
        models={model: megabytes(nbytes) for model, nbytes in freed.items()},
        rewarm_scheduled=rewarm,
    )


def megabytes(nbytes: int) -> float:
    """Return MiB, exact enough to read."""
    return round(nbytes / MB, 3)


def _to_model_cache(stats: ModelStats, text_of: Callable[[str, int], str]) -> ModelCache:
    miss = stats.cache.last_miss if stats.cache else None
    return ModelCache(
        **msgspec.structs.asdict(to_cache([stats])),
        last_miss=None if miss is None else _to_miss(miss, lambda token: text_of(stats.model, token)),
    )


def _to_miss(miss: CacheMiss, text_of: Callable[[int], str]) -> Miss:
    def told(token: int | None) -> Token | None:
        return None if token is None else Token(id=token, text=text_of(token) if token < FIRST_MEDIA_ID else "")

    return Miss(
        reason=miss.reason,
        prompt_tokens=miss.prompt_tokens,
        position=miss.position,
        prompt_token=told(miss.prompt_token),
        cached_token=told(miss.cached_token),
        nearest_tokens=miss.nearest_tokens,
    )
