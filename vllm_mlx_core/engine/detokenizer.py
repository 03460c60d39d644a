"""Turning token ids into text, one at a time, without ever splitting or losing a character."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from vllm_mlx_core.api import Tokenizer

_REPLACEMENT = "\ufffd"
_NO_PIECES: Mapping[int, str] = {}


class _Vocabulary:
    """What the tokens of one tokenizer say, as far as it was asked; shared by all completions that show the same.

    Holds no reference to the tokenizer, so that it can be dropped together with it.
    """

    __slots__ = ("data", "pieces", "strips", "visible")

    def __init__(self, visible: frozenset[str] | None) -> None:
        self.visible = visible
        self.pieces: dict[int, str] = {}
        """Tokens that are whole characters: their text wherever no character is open."""
        self.data: dict[int, bytes | None] = {}
        """Every token's bytes: empty if it is not shown, None if they depend on its neighbours."""
        self.strips: bool | None = None
        """Whether decoding drops a space at the very start of a text; None: not known yet."""

    def look_up(self, tokenizer: Tokenizer, token_id: int) -> bytes | None:
        try:
            return self.data[token_id]
        except KeyError:
            data = self.data[token_id] = self._ask(tokenizer, token_id)
        if data is not None:
            with suppress(UnicodeDecodeError):
                self.pieces[token_id] = data.decode()
        return data

    def _ask(self, tokenizer: Tokenizer, token_id: int) -> bytes | None:
        if not 0 <= token_id < tokenizer.vocab_size:  # logits may be wider than the vocabulary
            return b""
        special = tokenizer.special_token(token_id)
        if special is None:
            return tokenizer.token_bytes(token_id)
        return special.encode() if self.visible is None or special in self.visible else b""

    def strips_start(self, tokenizer: Tokenizer, token_id: int, data: bytes) -> bool:
        """Return whether the space that ``token_id`` starts with is dropped at the start of a text."""
        if self.strips is None:
            self.strips = tokenizer.decode([token_id]) != data.decode(errors="replace")
        return self.strips


_vocabularies: WeakKeyDictionary[Tokenizer, dict[frozenset[str] | None, _Vocabulary]] = WeakKeyDictionary()


def _vocabulary(tokenizer: Tokenizer, visible: frozenset[str] | None) -> _Vocabulary:
    try:
        return _vocabularies.setdefault(tokenizer, {}).setdefault(visible, _Vocabulary(visible))
    except TypeError:  # a tokenizer that cannot be referred to weakly, or hashed, is asked anew each time
        return _Vocabulary(visible)


def token_text(tokenizer: Tokenizer, token_id: int) -> bytes:
    """Return the text of one token seen alone, special or not, as bytes."""
    special = tokenizer.special_token(token_id)
    if special is not None:
        return special.encode()
    data = tokenizer.token_bytes(token_id)
    return tokenizer.decode([token_id]).encode() if data is None else data


class Detokenizer:
    """The text of one completion. Event-loop thread, or any one thread.

    The joined pieces are what ``tokenizer.decode`` makes of the same ids, without the special tokens that are not in
    ``visible`` (None: all are shown). Bytes that are not UTF-8 become U+FFFD, except an incomplete character at the
    end, which is dropped. Tokens whose bytes are known are looked up; from the first token on whose text depends on
    its neighbours, the newest tokens are decoded together.
    """

    def __init__(self, tokenizer: Tokenizer, visible: Collection[str] | None) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = _vocabulary(tokenizer, None if visible is None else frozenset(visible))
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: Mapping[int, str] = _NO_PIECES  # the vocabulary's, whenever they may be used as they are
        self._at_start = True
        self._last: int | None = None
        self._open: list[int] = []  # the tokens of a character that is not complete
        self._window: list[int] | None = None
        self._shown = 0  # how many tokens of the window have been shown

    def push(self, token_id: int) -> str:
        """Take the next token and return the text that is now certain, which may be empty. Mutates."""
        piece = self._pieces.get(token_id)
        if piece is not None:
            if piece:
                self._last = token_id
            return piece
        return self._push(token_id)[0]

    def push_with_bytes(self, token_id: int) -> tuple[str, bytes]:
        """Do what ``push`` does and also return the token's own bytes, empty if it is not shown.

        The bytes of a character that is not complete come at once, its text with the token that completes it.
        """
        piece = self._pieces.get(token_id)
        if piece is not None:
            if piece:
                self._last = token_id
            return piece, piece.encode()
        return self._push(token_id)

    def finish(self) -> str:
        """Return the text that was held back, without an incomplete character at its end. Called once."""
        if self._window is None:
            return ""
        before, now = self._decode_window(self._window)
        return now[len(before) :].rstrip(_REPLACEMENT)

    def _push(self, token_id: int) -> tuple[str, bytes]:
        data = self._vocabulary.look_up(self._tokenizer, token_id)
        if data == b"":
            return "", b""
        if data is None or self._window is not None:
            return self._push_window(token_id)
        if self._at_start:
            self._at_start = False
            if data.startswith(b" ") and self._vocabulary.strips_start(self._tokenizer, token_id, data):
                data = data[1:]
        text = self._decoder.decode(data)
        if self._decoder.getstate()[0]:
            self._open.append(token_id)
            self._pieces = _NO_PIECES
        else:
            self._last = token_id
            self._open.clear()
            self._pieces = self._vocabulary.pieces
        return text, data

    def _push_window(self, token_id: int) -> tuple[str, bytes]:
        if self._window is None:
            shown = [] if self._last is None else [self._last]
            self._window, self._shown = shown + self._open, len(shown)
            self._pieces = _NO_PIECES
        self._window.append(token_id)
        before, now = self._decode_window(self._window)
        if len(now) <= len(before) or now.endswith(_REPLACEMENT):
            return "", b""
        # One shown token stays: what follows it may depend on it.
        del self._window[: self._shown]
        self._shown = len(self._window)
        text = now[len(before) :]
        return text, text.encode()

    def _decode_window(self, window: list[int]) -> tuple[str, str]:
        before = self._tokenizer.decode(window[: self._shown]) if self._shown else ""
        return before, self._tokenizer.decode(window)
