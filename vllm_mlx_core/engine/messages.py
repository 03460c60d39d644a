"""The records that cross between front-ends and an engine, and nothing else does.

All of them are plain and serialisable, so that an engine can live in a thread or in a process of its own. To the
engine: ``Submit`` and ``Abort``. From the engine: one ``StepResult`` per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from vllm_mlx_core.api import CacheStats

STOPPED = "The server stopped before the request was finished."
BROKEN = "The engine failed and cannot serve any more."


class SamplingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """``SamplingParams`` with every default filled in: nothing is None but
    ``logprobs`` and ``prompt_logprobs``.

    ``temperature`` 0 is greedy, ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off, the penalties' neutral values are 0,
    0 and 1. ``seed`` is always set (drawn at random where the client gave none), so that a sequence that is preempted
    or moved goes on as it would have.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = {}
    seed: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Generate one completion. ``sequence_id`` is unique within the engine's life.

    ``max_tokens`` is 0 only where the prompt's log-probabilities are asked for.
    """

    sequence_id: int
    request_id: str
    prompt: Sequence[int]
    max_tokens: int
    min_tokens: int = 0
    stop_token_ids: Sequence[int] = ()
    sampling: SamplingSpec = SamplingSpec()
    priority: int = 0
    boundaries: Sequence[int] = ()
    """Token counts of the prompt after which its messages end, rising: worth resuming at."""
    cache_ids: Sequence[int] | None = None
    """What the prompt's tokens are known by where prompts are compared; None: by their ids."""
    user: str = ""
    """Whom to account to; empty: to nobody in particular, who has a share like any other."""
    salt: str = ""
    expected: bool = False
    """Whether what it leaves in the prefix cache counts as somebody's, even if it is idle."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop these sequences, wherever they are, and say nothing more of them."""

    sequence_ids: Sequence[int]


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Report what the engine holds, after dropping what the prefix cache can if ``clear_cache``."""

    query_id: int
    clear_cache: bool = False


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """End the engine after the current step; sequences that still run are failed."""


Command: TypeAlias = Submit | Abort | Inspect | Shutdown
EngineFinish: TypeAlias = Literal["stop", "length", "error"]


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """Natural log-probabilities of one token: the chosen one's, then the top alternatives, most likely first.

    For a token of a prompt the chosen one is the token that stands there.
    """

    chosen: float
    top_ids: Sequence[int]
    top_logprobs: Sequence[float]


class EngineReady(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says once, when it has loaded.

    ``nbytes`` is the weights' size, ``mode`` how it serves, ``captured`` whether decode steps are replayed
    (until a kernel fails).
    """

    vocab_size: int
    nbytes: int
    mode: str
    mode_reason: str
    captured: bool


class SequenceUpdate(msgspec.Struct, frozen=True, array_like=True):
    """What one step added to one sequence.

    ``logprobs`` has one entry per token if the sequence asked for them. A token that ended the sequence is delivered.
    ``cached_tokens`` (set with the first token) is how much of the prompt was not computed. ``error`` goes with
    ``finish == "error"`` and is fit for clients. ``prompt_logprobs``, if they were asked for, come with the first
    update of a sequence, one for each token of the prompt but the first.
    """

    sequence_id: int
    tokens: Sequence[int] = ()
    logprobs: Sequence[Logprobs] = ()
    finish: EngineFinish | None = None
    cached_tokens: int = 0
    error: str | None = None
    prompt_logprobs: Sequence[Logprobs] = ()


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to ``Inspect``; sizes in bytes. ``cache`` is None if no prefix cache is at work.

    ``freed_bytes`` is what clearing the cache freed. The memory figures are MLX's, for the whole process.
    """

    query_id: int
    steps: int
    cache: CacheStats | None
    cache_max_bytes: int | None
    freed_bytes: int
    active_memory_bytes: int
    peak_memory_bytes: int
    buffer_memory_bytes: int


class StepResult(msgspec.Struct, frozen=True, array_like=True):
    """Everything one step did: the engine's only way to speak while it runs. ``step_s`` is in seconds.

    ``admitted`` are the sequences that got a place in this step: until then they waited.
    """

    updates: Sequence[SequenceUpdate]
    running: int
    waiting: int
    prefilled_tokens: int
    generated_tokens: int
    step_s: float
    admitted: Sequence[int] = ()
    reports: Sequence[EngineReport] = ()
