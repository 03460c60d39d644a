"""From what the client said about sampling to what the engine does: defaults filled in, limits checked."""

from __future__ import annotations

import math
import secrets
from typing import Any

from vllm_mlx_core.api import ContextLengthExceeded, InvalidRequest, SamplingParams

from .messages import SamplingSpec

NEUTRAL: dict[str, float | int] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
SEEDS = 1 << 63
MAX_LOGPROBS = 20
MIN_REPETITION_PENALTY = 0.01
"""Smaller ones are what nobody means, and float32 divides by them into infinity."""


def resolve(params: SamplingParams, *defaults: SamplingParams, vocab_size: int, choice: int = 0) -> SamplingSpec:
    """Fill in what the client left open: from ``defaults`` in this order, then the neutral value.

    Completion ``choice`` of a request with a seed gets a seed of its own, derived from it, so that ``n`` completions
    differ and yet repeat. Raises InvalidRequest for a value the engine cannot honour.
    """
    values: dict[str, Any] = {}
    for name, neutral in NEUTRAL.items():
        said = (getattr(source, name) for source in (params, *defaults))
        values[name] = next((value for value in said if value is not None), neutral)
    values["top_k"] = max(0, values["top_k"])
    _check(values)
    if params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS:
        raise InvalidRequest(f"logprobs must be from 0 to {MAX_LOGPROBS}, not {params.logprobs}.", param="logprobs")
    asked = params.prompt_logprobs
    if asked is not None and not 0 <= asked <= MAX_LOGPROBS:
        raise InvalidRequest(f"prompt_logprobs must be from 0 to {MAX_LOGPROBS}, not {asked}.", param="prompt_logprobs")
    for token_id, addend in params.logit_bias.items():
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(f"Token id {token_id} is not in the vocabulary.", param="logit_bias")
        if not math.isfinite(addend):
            raise InvalidRequest(f"The bias of token {token_id} must be finite, not {addend}.", param="logit_bias")
    seed = secrets.randbelow(SEEDS) if params.seed is None else (params.seed + choice * 0x9E3779B97F4A7C15) % SEEDS
    return SamplingSpec(
        logit_bias=params.logit_bias, seed=seed, logprobs=params.logprobs, prompt_logprobs=asked, **values
    )


def output_budget(params: SamplingParams, *, default: int | None, prompt_tokens: int, context_length: int) -> int:
    """Return how many tokens may be generated: what was asked for, or ``default``, or all that fit.

    Never more than the context has room for; a prompt that fills it raises ContextLengthExceeded, and asking for
    nothing InvalidRequest, unless it is the prompt's log-probabilities that are wanted.
    """
    room = context_length - prompt_tokens
    least = 0 if params.max_tokens == 0 and params.prompt_logprobs is not None else 1
    if room < least:
        raise ContextLengthExceeded(
            f"This model's context is {context_length} tokens, and the prompt alone has {prompt_tokens}."
        )
    asked = params.max_tokens if params.max_tokens is not None else default
    if asked is not None and asked < least:
        raise InvalidRequest(f"max_tokens must be at least 1, not {asked}.", param="max_tokens")
    return room if asked is None else min(asked, room)


def _check(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidRequest(f"{name} must be a finite number, not {value}.", param=name)
    repeats, least = values["repetition_penalty"], MIN_REPETITION_PENALTY
    for name, is_right, must in (
        ("temperature", values["temperature"] >= 0, "at least 0"),
        ("top_p", 0 < values["top_p"] <= 1, "above 0 and at most 1"),
        ("min_p", 0 <= values["min_p"] <= 1, "from 0 to 1"),
        ("repetition_penalty", repeats >= least, f"at least {least}"),
    ):
        if not is_right:
            raise InvalidRequest(f"{name} must be {must}, not {values[name]}.", param=name)
