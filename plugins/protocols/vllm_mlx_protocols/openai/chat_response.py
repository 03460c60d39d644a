"""A chat completion that is not streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from vllm_mlx_core.api import Completion, FinishReason

from .logprobs import ChatLogprobs, chat_logprobs
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

    A call that was begun and never completed is left out, unless the length limit cut it: when the model broke it off,
    its text is content, and clients would fail on arguments that are no JSON. (A stream has said it by then.)
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
) -> ChatCompletion:
    """Return the response. Pure."""
    return ChatCompletion(
        id=response_id,
        created=created,
        model=model,
        choices=[
            ChatChoice(
                index,
                _message(completion),
                chat_logprobs(completion.logprobs) if with_logprobs else None,
                completion.finish_reason,
            )
            for index, completion in enumerate(completions)
        ],
        usage=report(prompt_tokens, (completion.usage for completion in completions), n=len(completions)),
    )


def _message(completion: Completion) -> ResponseMessage:
    calls = [
        ResponseToolCall(
            id=call.id,
            function=ResponseFunction(call.name, call.arguments or ("{}" if call.is_complete else "")),
        )
        for call in completion.tool_calls
        if call.is_complete or completion.finish_reason == "length"
    ]
    return ResponseMessage(
        content=completion.text or (None if calls else ""),
        reasoning=completion.reasoning or UNSET,
        reasoning_content=completion.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
