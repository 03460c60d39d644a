"""The scripted family's tokenizer: any piece of text can be a token, and gets an id when it is first seen."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from enum import IntEnum

from vllm_mlx_core.api import InvalidRequest


class Special(IntEnum):
    """The special tokens. The 256 ids after them are bytes; every other id below ``VOCAB_SIZE`` is a piece of text."""

    PAD = 0
    END = 1
    USER = 2
    ASSISTANT = 3
    MESSAGE = 4
    THINK = 5


SPECIAL_TEXTS = {
    Special.PAD: "<|pad|>",
    Special.END: "<|end|>",
    Special.USER: "<|user|>",
    Special.ASSISTANT: "<|assistant|>",
    Special.MESSAGE: "<|message|>",
    Special.THINK: "<think>\n",
}
VOCAB_SIZE = 8192
_FIRST_BYTE = len(Special)
_FIRST_PIECE = _FIRST_BYTE + 256

_SPECIAL_IDS = {text: special for special, text in SPECIAL_TEXTS.items()}
_MARKERS = re.compile("(" + "|".join(map(re.escape, _SPECIAL_IDS)) + ")")


class ScriptedTokenizer:
    """A vocabulary that grows as texts are read. Thread-safe; reading mutates it.

    What an id stands for never changes. When all ids are taken, further pieces are tokens of one byte each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._pieces: list[str] = []

    @property
    def vocab_size(self) -> int:
        """Number of token ids, taken or not."""
        return VOCAB_SIZE

    def split(self, text: str, width: int = 1) -> list[int]:
        """Return the ids of ``text`` in pieces of ``width`` characters; nothing in it is special.

        Raises InvalidRequest if a lone surrogate makes it no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("The text holds a lone surrogate, so it is not valid Unicode.") from error
        with self._lock:
            return [
                token_id
                for start in range(0, len(text), width)
                for token_id in self._ids_of(text[start : start + width])
            ]

    def _ids_of(self, piece: str) -> Sequence[int]:
        token_id = self._ids.get(piece)
        if token_id is None:
            token_id = _FIRST_PIECE + len(self._pieces)
            if token_id == VOCAB_SIZE:
                return [_FIRST_BYTE + byte for byte in piece.encode()]
            self._ids[piece] = token_id
            self._pieces.append(piece)
        return (token_id,)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return one id a character, and those of special tokens for their markers. No token is ever added."""
        ids: list[int] = []
        for part in _MARKERS.split(text):
            special = _SPECIAL_IDS.get(part)
            ids += self.split(part) if special is None else [int(special)]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; an id that stands for nothing yet adds nothing."""
        return b"".join(self.token_bytes(token_id) or b"" for token_id in token_ids).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, which never depend on its neighbours; None while it stands for nothing."""
        if token_id < _FIRST_BYTE:
            return SPECIAL_TEXTS[Special(token_id)].encode()
        if token_id < _FIRST_PIECE:
            return bytes([token_id - _FIRST_BYTE])
        with self._lock:
            place = token_id - _FIRST_PIECE
            return self._pieces[place].encode() if place < len(self._pieces) else None

    def special_token(self, token_id: int) -> str | None:
        """Return the text of a special token, or None."""
        return SPECIAL_TEXTS[Special(token_id)] if token_id in SPECIAL_TEXTS else None

    def token_id(self, token: str) -> int | None:
        """Return the id of a special token, or of a piece that is known now, or None."""
        special = _SPECIAL_IDS.get(token)
        if special is not None:
            return int(special)
        with self._lock:
            return self._ids.get(token)
