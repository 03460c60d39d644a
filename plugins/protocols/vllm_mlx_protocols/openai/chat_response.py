"""A chat completion that is not streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from vllm_mlx_core.api import Completion, FinishReason

from .logprobs import ChatLogprobs, chat_logprobs
from .reasoning import ReasoningField
from .usage import UsageReport, report


class ResponseFunction(msgspec.Struct):
    """The function that is to be called; ``arguments`` is JSON text."""

    name: str
    arguments: str


class ResponseToolCall(msgspec.Struct, kw_only=True):
    """A call the model made."""

    id: str
    type: Literal["function"] = "function"
    function: ResponseFunction


class ResponseMessage(msgspec.Struct, kw_only=True):
    """The answer. ``content`` is null if there are only tool calls.

    A call that was begun and never completed is there as far as it came, as it is in a stream, where it cannot be taken
    back. Its arguments are no complete JSON, so that no client takes it for a call that can be made.
    """

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ResponseToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    """One of the answers."""

    index: int
    message: ResponseMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The response body."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageReport


def to_response(
    completions: Sequence[Completion],
    *,
    response_id: str,
    created: int,
    model: str,
    prompt_tokens: int,
    with_logprobs: bool,
    reasoning_fields: Sequence[ReasoningField],
    echo: str = "",
) -> ChatCompletion:
    """Return the response; ``echo`` goes before each answer's text. Pure."""
    return ChatCompletion(
        id=response_id,
        created=created,
        model=model,
        choices=[
            ChatChoice(
                index,
                _message(completion, reasoning_fields, echo),
                chat_logprobs(completion.logprobs) if with_logprobs and completion.logprobs else None,
                completion.finish_reason,
            )
            for index, completion in enumerate(completions)
        ],
        usage=report(prompt_tokens, (completion.usage for completion in completions), n=len(completions)),
    )


def _message(completion: Completion, reasoning_fields: Sequence[ReasoningField], echo: str) -> ResponseMessage:
    calls = [
        ResponseToolCall(
            id=call.id,
            function=ResponseFunction(call.name, call.arguments or ("{}" if call.is_complete else "")),
        )
        for call in completion.tool_calls
    ]
    thought = completion.reasoning or UNSET
    return ResponseMessage(
        content=echo + completion.text or (None if calls else ""),
        reasoning=thought if "reasoning" in reasoning_fields else UNSET,
        reasoning_content=thought if "reasoning_content" in reasoning_fields else UNSET,
        tool_calls=calls or UNSET,
    )
