"""The scripted family's tokenizer: any piece of text can be a token, and gets an id when it is first seen."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum

from vllm_mlx_core.api import InvalidRequest


class Special(IntEnum):
    """The special tokens; every other id below ``VOCAB_SIZE`` is a piece of text."""

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

_SPECIAL_IDS = {text: special for special, text in SPECIAL_TEXTS.items()}
_MARKERS = re.compile("(" + "|".join(map(re.escape, _SPECIAL_IDS)) + ")")


class ScriptedTokenizer:
    """A vocabulary that grows as texts are read. Thread-safe; reading mutates it.

    ``VOCAB_SIZE`` bounds the number of different pieces that are known at one time. When all ids are taken, the piece
    that was used longest ago gives its id up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._pieces: dict[int, str] = {}

    @property
    def vocab_size(self) -> int:
        """Number of token ids, taken or not."""
        return VOCAB_SIZE

    def split(self, text: str, width: int = 1) -> list[int]:
        """Return the ids of ``text`` in pieces of ``width`` characters; nothing in it is special.

        Raises InvalidRequest if there are more different pieces than ids, or if a lone surrogate makes it no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("The text holds a lone surrogate, so it is not valid Unicode.") from error
        pieces = [text[start : start + width] for start in range(0, len(text), width)]
        if len(set(pieces)) > VOCAB_SIZE - len(Special):
            raise InvalidRequest(f"The text has more than {VOCAB_SIZE - len(Special)} different tokens.")
        with self._lock:
            return [self._intern(piece) for piece in pieces]

    def _intern(self, piece: str) -> int:
        token_id = self._ids.get(piece)
        if token_id is not None:
            self._ids.move_to_end(piece)
            return token_id
        free = len(Special) + len(self._ids)
        token_id = free if free < VOCAB_SIZE else self._ids.popitem(last=False)[1]
        self._ids[piece] = token_id
        self._pieces[token_id] = piece
        return token_id

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return one id a character, and those of special tokens for their markers. No token is ever added."""
        ids: list[int] = []
        for part in _MARKERS.split(text):
            special = _SPECIAL_IDS.get(part)
            ids += self.split(part) if special is None else [int(special)]
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; an id that stands for nothing yet adds nothing."""
        with self._lock:
            return "".join(self._text(token_id) for token_id in token_ids)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, which never depend on its neighbours."""
        return self.decode([token_id]).encode()

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

    def _text(self, token_id: int) -> str:
        return self.special_token(token_id) or self._pieces.get(token_id, "")
