"""A text completion that is not streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from vllm_mlx_core.api import Completion, FinishReason

from .logprobs import TextLogprobs, text_logprobs
from .usage import UsageReport, report


class TextChoice(msgspec.Struct):
    """One of the completions."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None


class TextCompletion(msgspec.Struct, kw_only=True):
    """The response body."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageReport


def to_response(
    completions: Sequence[Completion],
    *,
    response_id: str,
    created: int,
    model: str,
    prompt_tokens: int,
    n: int,
    echoes: Sequence[str],
    logprobs: int | None,
) -> TextCompletion:
    """Return the response; ``echoes`` go before the completions' texts. Pure."""
    return TextCompletion(
        id=response_id,
        created=created,
        model=model,
        choices=[
            TextChoice(
                index,
                echo + completion.text,
                None if logprobs is None else text_logprobs(completion.logprobs, 0, with_top=logprobs > 0),
                completion.finish_reason,
            )
            for index, (completion, echo) in enumerate(zip(completions, echoes, strict=True))
        ],
        usage=report(prompt_tokens, (completion.usage for completion in completions), n=n),
    )
