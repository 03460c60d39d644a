"""Log-probabilities in the two shapes that OpenAI has for them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from vllm_mlx_core.api import TokenLogprob, TokenLogprobs

IMPOSSIBLE = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


class Alternative(msgspec.Struct):
    """One token that could have come."""

    token: str
    logprob: float
    bytes: list[int]


class Entry(msgspec.Struct):
    """The token that came, and the most likely ones."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[Alternative]


class ChatLogprobs(msgspec.Struct):
    """``choices[].logprobs`` of a chat completion."""

    content: list[Entry]
    refusal: None = None


class TextLogprobs(msgspec.Struct):
    """``choices[].logprobs`` of a text completion; ``text_offset`` counts characters from the start of its text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


def chat_logprobs(tokens: Iterable[TokenLogprobs]) -> ChatLogprobs:
    """Return one entry per token."""
    return ChatLogprobs(
        [
            Entry(
                _text(token.chosen),
                _finite(token.chosen.logprob),
                list(token.chosen.text),
                [Alternative(_text(each), _finite(each.logprob), list(each.text)) for each in token.top],
            )
            for token in tokens
        ]
    )


def text_logprobs(tokens: Iterable[TokenLogprobs], offset: int, *, with_top: bool) -> TextLogprobs:
    """Return the columns for tokens whose text starts ``offset`` characters into the completion."""
    result = TextLogprobs([], [], [] if with_top else None, [])
    for token in tokens:
        text = _text(token.chosen)
        result.tokens.append(text)
        result.token_logprobs.append(_finite(token.chosen.logprob))
        result.text_offset.append(offset)
        offset += len(text)
        if result.top_logprobs is not None:
            result.top_logprobs.append({_text(each): _finite(each.logprob) for each in token.top})
    return result


def _text(token: TokenLogprob) -> str:
    return token.text.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return logprob if logprob > IMPOSSIBLE else IMPOSSIBLE  # not a number becomes this as well
