"""A message that is not streamed, and what a stream says in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from vllm_mlx_core.api import Completion, FinishReason, Said, Usage

SIGNATURE = "dmxsbS1tbHg="
"""Signs every thought. Clients want one and send it back unread; it is not checked."""

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class OutputTokensDetails(msgspec.Struct):
    """How much of the output is thinking."""

    thinking_tokens: int


class UsageReport(msgspec.Struct, kw_only=True):
    """The ``usage`` object. The prompt has ``input_tokens`` and ``cache_read_input_tokens`` tokens together.

    Nothing is written to the cache on request, so nothing is ever reported as created.
    """

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET


class Message(msgspec.Struct, kw_only=True):
    """The response body, and the message with which a stream starts."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: Sequence[dict[str, Any]] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: UsageReport


class TokenCount(msgspec.Struct):
    """The body that counts tokens."""

    input_tokens: int


def report(prompt_tokens: int, usage: Usage) -> UsageReport:
    """Return the token counts of a finished request."""
    return UsageReport(
        input_tokens=prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(usage.reasoning_tokens),
    )


def stopping(
    finish: FinishReason | None, stop: str | int | None, sequences: Sequence[str], *, cut_off: bool
) -> tuple[StopReason, str | None]:
    """Return the reason and, if one of the client's own sequences ended the message, which.

    ``cut_off`` says that a call was. Whoever cut it: a stream has shown its beginning, and only of a message that
    ended at the limit do clients expect that such a call cannot be made.
    """
    if cut_off or finish == "length":
        return "max_tokens", None
    if finish == "tool_calls":
        return "tool_use", None
    if isinstance(stop, str) and stop in sequences:
        return "stop_sequence", stop
    return "end_turn", None


def to_response(
    completion: Completion,
    *,
    message_id: str,
    model: str,
    prompt_tokens: int,
    stop_sequences: Sequence[str],
    show_thinking: bool,
) -> Message:
    """Return the message. Pure."""
    cut_off = not all(call.is_complete for call in completion.tool_calls)
    reason, sequence = stopping(completion.finish_reason, completion.stop, stop_sequences, cut_off=cut_off)
    return Message(
        id=message_id,
        model=model,
        content=list(_content(completion, show_thinking)),
        stop_reason=reason,
        stop_sequence=sequence,
        usage=report(prompt_tokens, completion.usage),
    )


def _content(completion: Completion, show_thinking: bool) -> Iterator[dict[str, Any]]:
    """Yield the blocks, in the order of a stream's.

    A call that was cut off is left out: half an ``input`` would look like a whole one.
    """
    for part in completion.parts:
        if isinstance(part, Said):
            if part.kind == "text":
                yield {"type": "text", "text": part.text}
            else:
                yield {"type": "thinking", "thinking": part.text if show_thinking else "", "signature": SIGNATURE}
        elif part.is_complete:
            arguments = msgspec.Raw(part.arguments.encode() or b"{}")
            yield {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
