"""A text completion that is not streamed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from vllm_mlx_core.api import Completion, FinishReason

from .logprobs import TextColumns, TextLogprobs
from .ranking import best
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
    generated: int,
    echoes: Sequence[str],
    logprobs: int | None,
) -> TextCompletion:
    """Return the response. Pure.

    Of each prompt's ``generated`` completions the ``n`` best are sent, and all are counted. ``echoes`` go before their
    texts.
    """
    return TextCompletion(
        id=response_id,
        created=created,
        model=model,
        choices=[
            TextChoice(
                index,
                echo + completion.text,
                _logprobs(completion, echo, logprobs),
                completion.finish_reason,
            )
            for index, (completion, echo) in enumerate(
                zip(best(completions, generated=generated, wanted=n), echoes, strict=True)
            )
        ],
        usage=report(prompt_tokens, (completion.usage for completion in completions), n=generated),
    )


def _logprobs(completion: Completion, echo: str, wanted: int | None) -> TextLogprobs | None:
    """Return them if the client wants them and there are any; a stream in which none came says null as well."""
    if wanted is None:
        return None
    columns = TextColumns(with_top=wanted > 0)
    if completion.prompt_logprobs:
        columns.echo(completion.prompt_logprobs, echo)
    columns.add(completion.logprobs)
    return columns.take()
