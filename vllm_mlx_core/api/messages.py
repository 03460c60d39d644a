"""What a front-end asks of the engine, and what it gets back.

These are plain records: whatever crosses between a front-end and an engine can be serialised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .caching import CacheStats
from .events import Event
from .parsing import Tool

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""Why a completion ended: the model or a stop string ended it, it reached a limit, or it called tools."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to pick tokens. None means: not said, so the model's own default, then the neutral value, applies.

    ``temperature`` 0 is greedy. ``top_k`` 0 or -1 switches it off. ``seed`` makes a completion repeatable whoever
    else is in the batch. ``logit_bias`` maps token ids to an addend in logits. ``logprobs`` is the number of
    alternatives to report per token (0: only the chosen token); None reports nothing. ``prompt_logprobs`` asks the same
    of the prompt's tokens. The prompt is then computed from its beginning, whatever the prefix cache holds;
    ``max_tokens`` may be 0; and ``logprobs`` has an entry for every token of the completion, shown or not.
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
    prompt_logprobs: int | None = None
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


class Infill(msgspec.Struct, frozen=True, kw_only=True):
    """A gap to fill: the text before and after it. Only models that were trained for it can (fill-in-the-middle)."""

    prefix: str
    suffix: str


Prompt: TypeAlias = Chat | Infill | str | Sequence[int]
"""A conversation, a gap in a text, a text that is tokenised as it is, or token ids."""

IDLE_PRIORITY = 2**31 - 1
"""The ``priority`` of work that waits while anything else does."""


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
    call_required: bool = False
    """True: an answer that comes to its end without a complete call is an InvalidRequest, raised by its outputs."""
    add_special_tokens: bool = True
    """Whether a text prompt gets the beginning-of-text token, if the tokenizer adds one."""
    priority: int = 0
    """Lower runs first, up to IDLE_PRIORITY."""
    cache_salt: str = ""
    """Prompts share cached beginnings only with those of the same salt."""
    expected: bool = False
    """True: people are expected to ask what begins like this. What it leaves in the prefix cache is kept like what they
    asked themselves, even if it is read at idle priority."""
    user: str | None = None
    """Whom to account to: the name of the API key, or nothing."""
    trace_id: str | None = None
    """The X-Request-Id of the HTTP request, under which it can be cancelled and found in logs."""
    timeout_s: float | None = None
    """How long it may wait and run, in seconds; None: as long as the server's settings say."""


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


class PromptToken(msgspec.Struct, frozen=True):
    """A token of the prompt, what it adds to the prompt's text, and how likely it was after those before it.

    ``logprob`` and ``top`` (most likely first) mean what they do in ``TokenLogprobs``; the first token has none.
    """

    token_id: int
    text: bytes
    logprob: float | None = None
    top: Sequence[TokenLogprob] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine step added to one completion.

    The last output of a completion has ``finish`` and ``usage`` (of this completion alone; ``prompt_tokens`` is that
    of the request). ``stop`` is the stop string or token id that ended it, if one did. ``cached_tokens`` is how much of
    the prompt came from the prefix cache; every output says it. ``prompt_logprobs``, if they were asked for, are all
    tokens of the prompt; they are on the first output of each completion.
    """

    choice: int
    events: Sequence[Event] = ()
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    finish: FinishReason | None = None
    stop: str | int | None = None
    usage: Usage | None = None
    cached_tokens: int = 0
    prompt_logprobs: Sequence[PromptToken] = ()


class RenderedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as the model sees it: its text (empty if it came as token ids) and its token ids.

    ``boundaries`` are numbers of tokens, rising, after which a message ends, as far as that is known. Another
    conversation may part from this one there, so models whose states cannot go back keep some at these points.

    ``cache_ids`` are what the prefix cache knows the tokens by, one number each below 2**32, where their ids do not say
    all: ``media_ids`` for the placeholders of an image, the tokens' ids for the others. None: the ids say all.
    """

    text: str
    token_ids: Sequence[int]
    boundaries: Sequence[int] = ()
    cache_ids: Sequence[int] | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What clients may know of a served model. ``created`` is a Unix time in seconds.

    ``capabilities`` is a JSON object: ``chat``, ``completion``, ``tools``, ``reasoning``, ``infill``, ``vision``
    (true or false) and how it is served (``serving_mode``, ``serving_mode_reason``).
    """

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

    ``queued_s`` is when the engine took it up, ``first_token_s`` when its first token came: prefill lies between.
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
    queued_s: float | None = None
    trace_id: str | None = None


class StepStats(msgspec.Struct, frozen=True, kw_only=True):
    """One engine step: how many sequences run and wait, how many tokens were prefilled and generated."""

    model: str
    running: int
    waiting: int
    prefilled_tokens: int
    generated_tokens: int
    step_s: float


class ActiveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has not ended. Times are in seconds; ``max_tokens`` is the limit of each of ``n`` completions.

    ``phase``: it waits for a place, its prompt is read, or it generates (at least one of its completions does).
    """

    request_id: str
    trace_id: str | None
    model: str
    user: str | None
    phase: Literal["queued", "prefill", "generation"]
    n: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    max_tokens: int
    age_s: float
    first_token_s: float | None


class WarmUpStats(msgspec.Struct, frozen=True, kw_only=True):
    """How far the latest reading of the prompts in ``Settings.warm_prompts`` is.

    ``warmed`` of the ``entries`` have been read, ``failed`` could not be. ``tokens`` are those of the beginnings that
    were read or already known, each entry counted by itself; ``elapsed_s`` is in seconds.
    """

    running: bool
    entries: int
    warmed: int
    failed: int
    tokens: int
    elapsed_s: float


class ModelStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one model's engine holds and has done. Counters are since it was loaded; sizes are in bytes.

    ``prompt_tokens`` and ``completion_tokens`` are those of requests that have ended. ``cache`` is None if nothing is
    kept between requests. The memory figures are MLX's, for the whole process that the engine runs in.
    """

    model: str
    uptime_s: float
    steps: int
    running: int
    waiting: int
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cache_policy: str
    cache: CacheStats | None
    cache_max_bytes: int | None
    weights_bytes: int
    active_memory_bytes: int
    peak_memory_bytes: int
    buffer_memory_bytes: int
    warm_up: WarmUpStats | None = None
    """None if there are no prompts to warm the model's prefix cache with."""
