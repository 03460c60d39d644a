"""The ``options`` of a request: how to pick tokens, and much about hardware that is not the client's to say here."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_mlx_core.api import InvalidRequest, SamplingParams, Settings
from vllm_mlx_protocols import limits

UNLIMITED = (-2, -1, 0)
"""Values of ``num_predict`` that mean "until the model or the context ends it"."""
RANDOM_SEED = -1
NEUTRAL = {"mirostat": 0, "typical_p": 1, "tfs_z": 1}
"""Samplers that this build has not, and the values that switch them off. Ollama's clients send those unasked."""


class HonouredOptions(BaseModel):
    """What is honoured. Null always means "not said"; options of other names are ignored, as Ollama does."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """-1: a new one each time."""
    num_predict: Annotated[int, Field(ge=-2)] | None = None
    """Most tokens of the answer; 0, -1 and -2 set no limit."""
    stop: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=limits.MAX_STOP_CHARS)]],
            Field(max_length=limits.MAX_STOPS),
        ]
        | None
    ) = None
    repeat_penalty: Annotated[float, Field(ge=limits.MIN_REPETITION_PENALTY, le=10)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None


class Options(HonouredOptions):
    """All that Ollama knows. What stands here is refused unless neutral, or ignored, whatever its type."""

    mirostat: float | None = None
    """Refused unless it is 0."""
    typical_p: float | None = None
    """Refused unless it is 1."""
    tfs_z: float | None = None
    """Refused unless it is 1."""
    mirostat_tau: Any = None
    """Ignored, like the one below: they are of use to ``mirostat`` only."""
    mirostat_eta: Any = None
    penalize_newline: Any = None
    """Ignored: a newline is a token like others."""
    repeat_last_n: Any = None
    """Ignored: penalties look as far back as they do for every client."""
    num_ctx: Any = None
    """Ignored: the context is the model's, or what the operator made it."""
    num_keep: Any = None
    """Ignored: nothing is dropped from a prompt."""
    num_batch: Any = None
    """Ignored, like all below: hardware is the operator's to choose, when the model is loaded."""
    num_gpu: Any = None
    main_gpu: Any = None
    num_thread: Any = None
    numa: Any = None
    low_vram: Any = None
    f16_kv: Any = None
    logits_all: Any = None
    vocab_only: Any = None
    use_mmap: Any = None
    use_mlock: Any = None
    embedding_only: Any = None


def to_sampling(options: Options | None, settings: Settings, *, logprobs: int | None) -> SamplingParams:
    """Return the sampling parameters. Pure. Raises InvalidRequest naming the option."""
    chosen = options or Options()
    for name, neutral in NEUTRAL.items():
        if getattr(chosen, name) not in (None, neutral):
            param = f"options.{name}"
            raise InvalidRequest(f"{param} must be {neutral}: this build has no such sampler.", param=param)
    return SamplingParams(
        max_tokens=_limit(chosen.num_predict, settings),
        temperature=chosen.temperature,
        top_p=chosen.top_p,
        top_k=chosen.top_k,
        min_p=chosen.min_p,
        presence_penalty=chosen.presence_penalty,
        frequency_penalty=chosen.frequency_penalty,
        repetition_penalty=chosen.repeat_penalty,
        seed=None if chosen.seed == RANDOM_SEED else chosen.seed,
        stop=tuple(chosen.stop or ()),
        logprobs=logprobs,
    )


def _limit(num_predict: int | None, settings: Settings) -> int | None:
    if num_predict is None or num_predict in UNLIMITED:
        return None
    limits.check_max_tokens(num_predict, settings, "options.num_predict")
    return num_predict
