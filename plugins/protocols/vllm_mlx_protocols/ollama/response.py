"""What answers are made of, whole and in pieces: both have one shape, and only the last piece is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from vllm_mlx_core.api import Completion, EngineFailed, FinishReason, TokenLogprobs
from vllm_mlx_protocols.openai.logprobs import chat_logprobs

from .timing import now

Kind: TypeAlias = Literal["chat", "generate"]
"""Which route answers: its text is in a ``message``, or in ``response``."""


def answer(
    kind: Kind,
    model: str,
    *,
    text: str = "",
    thinking: str = "",
    calls: Sequence[dict[str, Any]] = (),
    logprobs: Sequence[TokenLogprobs] = (),
    ending: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one answer or piece of one; ``ending`` is what the last piece has besides ``done``."""
    said: dict[str, Any] = {"role": "assistant", "content": text} if kind == "chat" else {"response": text}
    if thinking:
        said["thinking"] = thinking
    if calls:
        said["tool_calls"] = calls
    body: dict[str, Any] = {"model": model, "created_at": now()}
    body |= {"message": said} if kind == "chat" else said
    body["done"] = ending is not None
    if ending is not None:
        body |= ending
    if logprobs:
        body["logprobs"] = chat_logprobs(logprobs).content
    return body


def whole(
    kind: Kind, model: str, completion: Completion, metrics: dict[str, Any], *, show_thinking: bool
) -> dict[str, Any]:
    """Return a finished completion. A call that was cut off is left out: there is no object to give for it."""
    return answer(
        kind,
        model,
        text=completion.text,
        thinking=completion.reasoning if show_thinking else "",
        calls=[
            tool_call(index, call.id, call.name, call.arguments)
            for index, call in enumerate(completion.tool_calls)
            if call.is_complete
        ],
        logprobs=completion.logprobs,
        ending={"done_reason": done_reason(completion.finish_reason), **metrics},
    )


def tool_call(index: int, id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a complete call. Its arguments stay as the model wrote them, but on one line.

    A line break within a JSON string is always escaped, so the ones that are there are blanks between its parts.
    """
    line = arguments.replace("\n", " ").replace("\r", " ") or "{}"
    return {"id": id, "function": {"index": index, "name": name, "arguments": msgspec.Raw(line.encode())}}


def done_reason(finish: FinishReason | None) -> str:
    """Return why an answer ended. Raises EngineFailed if it has not."""
    if finish is None:
        raise EngineFailed("The engine stopped before the answer was complete.")
    return "length" if finish == "length" else "stop"
