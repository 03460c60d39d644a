"""Log-probabilities in the two shapes that OpenAI has for them."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

import msgspec

from vllm_mlx_core.api import PromptToken, TokenLogprob, TokenLogprobs

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
    """``choices[].logprobs`` of a text completion; ``text_offset`` counts characters from the start of its text.

    The first token of a prompt has no log-probabilities.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
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


class TextColumns:
    """Makes the columns of one completion, in parts: of what it echoes, once, and of what is generated.

    Of a character's parts, the last one has it and the others are empty.
    """

    def __init__(self, *, with_top: bool) -> None:
        self._with_top = with_top
        self._offset = 0
        self._decoder = _utf8()
        self._part = self._empty()

    def echo(self, tokens: Sequence[PromptToken], text: str) -> None:
        """Add the tokens of a prompt that is echoed as ``text``. Mutates.

        Joined, the tokens are ``text``, but they may have more at either end, like a beginning-of-text token that the
        tokenizer added; it takes no place in the text.
        """
        decoder = _utf8()
        last = len(tokens) - 1
        texts = [decoder.decode(token.text, final=place == last) for place, token in enumerate(tokens)]
        offset = -max(0, "".join(texts).find(text))
        for token, piece in zip(tokens, texts, strict=True):
            own = None if token.logprob is None else _finite(token.logprob)
            self._add(piece, own, min(max(0, offset), len(text)), token.token_id, token.top)
            offset += len(piece)
        self._offset = len(text)

    def add(self, tokens: Iterable[TokenLogprobs]) -> None:
        """Add generated tokens. Mutates."""
        for token in tokens:
            chosen = token.chosen
            piece = self._decoder.decode(chosen.text)
            self._add(piece, _finite(chosen.logprob), self._offset, chosen.token_id, token.top)
            self._offset += len(piece)

    def take(self) -> TextLogprobs | None:
        """Return what was added since the last time, or None if nothing was. Mutates."""
        if not self._part.tokens:
            return None
        part, self._part = self._part, self._empty()
        return part

    def _empty(self) -> TextLogprobs:
        return TextLogprobs([], [], [] if self._with_top else None, [])

    def _add(self, text: str, own: float | None, offset: int, token_id: int, top: Sequence[TokenLogprob]) -> None:
        part = self._part
        part.tokens.append(text)
        part.token_logprobs.append(own)
        part.text_offset.append(offset)
        if part.top_logprobs is None:
            return
        if own is None:
            part.top_logprobs.append(None)
            return
        alternatives: dict[str, float] = {}
        for each in top:  # of those that read the same, the most likely one
            if each.token_id != token_id:
                alternatives.setdefault(_text(each), _finite(each.logprob))
        alternatives[text] = own  # the token itself is always among them, under the text that it has here
        part.top_logprobs.append(alternatives)


def _utf8() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _text(token: TokenLogprob) -> str:
    return token.text.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return logprob if logprob > IMPOSSIBLE else IMPOSSIBLE  # not a number becomes this as well
