"""The fields that say how to pick tokens, which both generating endpoints have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_core.api import InvalidRequest, SamplingParams, Settings
from vllm_mlx_protocols import limits
from vllm_mlx_protocols.picking import PickingFields

from .ignored import RequestBody
from .refused import UNSUPPORTED, refuse

__all__ = ["UNSUPPORTED", "SamplingFields", "StreamOptions", "check", "to_sampling"]

UNSET_MAX_TOKENS = -1
"""What some clients send for "no limit"."""


class StreamOptions(BaseModel):
    """What a stream contains besides the answer."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(RequestBody, PickingFields):
    """What both generating endpoints honour."""

    model: str = "default"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    """1 or more; -1 is "not said". 0 with an echo."""
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    """No stop before this many tokens."""
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | list[str] | None = None
    """At most 64 strings of at most 1024 characters."""
    stop_token_ids: (
        Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=limits.MAX_STOP_TOKENS)] | None
    ) = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=limits.MAX_LOGIT_BIAS)] | None
    ) = None
    """Token ids, as strings, to what is added to their logits."""
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    """False: special tokens that the model writes stay in the text."""
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    """Lower runs first."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=limits.MAX_SALT_CHARS)] | None = None
    """Prompts share cached beginnings only with those of the same salt."""

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def check(body: SamplingFields, settings: Settings) -> None:
    """Raise InvalidRequest for what types alone cannot say."""
    refuse(body.model_extra)
    if body.n is not None and body.n > settings.max_completions:
        raise InvalidRequest(f"n must be at most {settings.max_completions}.", param="n")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options needs stream: true.", param="stream_options")
    if body.stream_options is not None and body.stream_options.continuous_usage_stats:
        param = "stream_options.continuous_usage_stats"
        raise InvalidRequest(f"{param} is not supported: usage comes once, at the end.", param=param)


def to_sampling(
    body: SamplingFields,
    settings: Settings,
    *,
    max_tokens: tuple[str, int | None],
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """Return the sampling parameters. ``max_tokens`` is the field that counts and its value. Raises InvalidRequest."""
    limit = _max_tokens(*max_tokens, settings, least=1 if prompt_logprobs is None else 0)
    minimum = body.min_tokens or 0
    if limit is not None and minimum > limit:
        raise InvalidRequest(f"min_tokens is larger than {max_tokens[0]}.", param="min_tokens")
    return SamplingParams(
        max_tokens=limit,
        min_tokens=minimum,
        **body.picking(),
        logit_bias={_token_id(key): value for key, value in (body.logit_bias or {}).items()},
        stop=_stops(body.stop),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        skip_special_tokens=body.skip_special_tokens is not False,
    )


def _max_tokens(field: str, value: int | None, settings: Settings, *, least: int) -> int | None:
    if value is None or value == UNSET_MAX_TOKENS:
        return None
    if value < least:
        raise InvalidRequest(f"{field} must be 1 or more, or -1 for no limit.", param=field)
    limits.check_max_tokens(value, settings, field)
    return value


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > limits.MAX_STOPS:
        raise InvalidRequest(f"stop takes at most {limits.MAX_STOPS} strings.", param="stop")
    if not all(stops):
        raise InvalidRequest("stop must not hold an empty string.", param="stop")
    if max(map(len, stops), default=0) > limits.MAX_STOP_CHARS:
        raise InvalidRequest(f"A stop string may have at most {limits.MAX_STOP_CHARS} characters.", param="stop")
    return stops


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10):
        raise InvalidRequest("logit_bias: every key must be a token id, written as a string.", param="logit_bias")
    return int(key)
