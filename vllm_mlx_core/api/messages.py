"""What a front-end asks of the engine, and what it gets back.

These are plain records: whatever crosses between a front-end and an engine can be serialised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .events import Event
from .parsing import Tool

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""Why a completion ended: the model or a stop string ended it, it reached a limit, or it called tools."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to pick tokens. None means: not said, so the model's own default, then the neutral value, applies.

    ``temperature`` 0 is greedy. ``top_k`` 0 or -1 switches it off. ``seed`` makes a completion repeatable whoever
    else is in the batch. ``logit_bias`` maps token ids to an addend in logits. ``logprobs`` is the number of
    alternatives to report per token (0: only the chosen token); None reports nothing.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] = {}
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    skip_special_tokens: bool = True


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation for the chat template.

    ``messages`` are dictionaries with the keys ``role``, ``content`` (a string, or a list of content parts),
    ``tool_calls`` (``[{"id", "type": "function", "function": {"name", "arguments"}}]``, arguments a JSON string or an
    object), ``tool_call_id``, ``name`` and ``reasoning_content``. ``template_kwargs`` reach the template as they
    are; they can never replace it.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Tool] = ()
    template_kwargs: Mapping[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False


Prompt: TypeAlias = Chat | str | Sequence[int]
"""A conversation, a text that is tokenised as it is, or token ids."""


class GenerateRequest(msgspec.Struct, kw_only=True):
    """One generation: ``n`` completions of one prompt. Hooks may adjust it before it is rendered."""

    request_id: str
    model: str
    prompt: Prompt
    sampling: SamplingParams = msgspec.field(default_factory=SamplingParams)
    n: int = 1
    tools_enabled: bool = True
    """False: the client forbade calls; if the model makes one all the same, it is left out."""
    parallel_tool_calls: bool = True
    """False: at most one call per completion; generation stops after it."""
    priority: int = 0
    """Lower runs first."""
    user: str | None = None
    """Whom to account to: the name of the API key, or nothing."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of a request, or of one completion of it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class TokenLogprob(msgspec.Struct, frozen=True):
    """A token, its text as bytes and its natural log-probability under the unmodified model distribution."""

    token_id: int
    text: bytes
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True):
    """The chosen token and its most likely alternatives, most likely first."""

    chosen: TokenLogprob
    top: Sequence[TokenLogprob] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine step added to one completion.

    The last output of a completion has ``finish`` and ``usage`` (of this completion alone; ``prompt_tokens`` is that
    of the request). ``stop`` is the stop string or token id that ended it, if one did.
    """

    choice: int
    events: Sequence[Event] = ()
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    finish: FinishReason | None = None
    stop: str | int | None = None
    usage: Usage | None = None


class RenderedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as the model sees it: its text (empty if it came as token ids) and its token ids."""

    text: str
    token_ids: Sequence[int]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What clients may know of a served model. ``created`` is a Unix time in seconds."""

    id: str
    created: int
    context_length: int
    family: str
    aliases: Sequence[str] = ()
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    capabilities: Mapping[str, Any] = {}


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How a request went; times are in seconds since it was queued. ``error`` is the error's class name, or None.

    ``invalid_tool_calls`` counts the calls that did not fit what was declared; see ``Settings.validate_tool_calls``.
    """

    request_id: str
    model: str
    user: str | None
    usage: Usage
    finish_reasons: Sequence[str]
    first_token_s: float | None
    total_s: float
    error: str | None = None
    invalid_tool_calls: int = 0


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """One engine step: how many sequences run and wait, how many tokens were prefilled and generated."""

    model: str
    running: int
    waiting: int
    prefilled_tokens: int
    generated_tokens: int
    step_s: float
