"""Tokenizers behind the api's interface: one over the ``tokenizers`` library, one over anything transformers has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from threading import Lock
from typing import Any

import tokenizers

from .token_bytes import alphabet_of


class FastTokenizer:
    """Over a ``tokenizers.Tokenizer``, which is safe to share because nothing here changes it after the start."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_truncation()  # tokenizer.json may hold what its training used
        backend.no_padding()
        self._backend = backend
        self._added = dict(backend.get_added_tokens_decoder())
        self._size = max([backend.get_vocab_size(with_added_tokens=True), *(i + 1 for i in self._added)])
        self._alphabet = alphabet_of(_decoder_description(backend))
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        return self._size

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of ``text``; lone surrogates are replaced."""
        try:
            return self._encode(text, add_special_tokens)
        except (TypeError, UnicodeEncodeError):  # which of them depends on the library's version
            return self._encode(repair(text), add_special_tokens)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # Unlike ``encode``, the batch form lets other threads run, and keeps no offsets.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``; ids outside the vocabulary add nothing."""
        return self._backend.decode(list(token_ids), skip_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes one token adds to a text; None if this kind of vocabulary does not tell."""
        if self._alphabet is None:
            return None
        known = self._bytes.get(token_id)
        if known is None:
            token = self._backend.id_to_token(token_id) if 0 <= token_id < self._size else None
            known = self._bytes[token_id] = b"" if token is None else self._alphabet.to_bytes(token)
        return known

    def special_token(self, token_id: int) -> str | None:
        """Return the text of a special token, or None for an ordinary one."""
        token = self._added.get(token_id)
        return token.content if token is not None and token.special else None

    def is_added(self, token_id: int) -> bool:
        """Return whether the token was added beside the trained vocabulary, special or not."""
        return token_id in self._added

    def token_id(self, token: str) -> int | None:
        """Return the id of the token whose text is exactly ``token``, or None."""
        found = self._backend.token_to_id(token)
        if found is not None and (self._alphabet is None or self.is_added(found)):
            return int(found)
        wanted = token.encode("utf-8", "replace")
        for spelling in self._alphabet.spellings(token) if self._alphabet else ():
            found = self._backend.token_to_id(spelling)
            if found is not None and self.token_bytes(found) == wanted:
                return int(found)
        return None


class SlowTokenizer:
    """Over a transformers tokenizer written in Python (SentencePiece, tiktoken, remote code). One caller at a time."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._lock = Lock()
        self._special = dict(zip(backend.all_special_ids, backend.all_special_tokens, strict=True))
        self._added = {int(i): str(token) for i, token in backend.added_tokens_decoder.items()}
        self._size = max([len(backend), *(i + 1 for i in self._added)])

    @property
    def vocab_size(self) -> int:
        """Number of token ids, added tokens included."""
        return self._size

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of ``text``; lone surrogates are replaced."""
        with self._lock:
            return [int(i) for i in self._backend.encode(repair(text), add_special_tokens=add_special_tokens)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ``token_ids``, special tokens included."""
        with self._lock:
            text = self._backend.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the text of an added token; of others nothing is known."""
        added = self._added.get(token_id)
        return None if added is None else added.encode()

    def special_token(self, token_id: int) -> str | None:
        """Return the text of a special token, or None for an ordinary one."""
        return self._special.get(token_id)

    def is_added(self, token_id: int) -> bool:
        """Return whether the token was added beside the trained vocabulary, special or not."""
        return token_id in self._added or token_id in self._special

    def token_id(self, token: str) -> int | None:
        """Return the id of the token whose text is exactly ``token``, or None."""
        for table in (self._added, self._special):
            for token_id, text in table.items():
                if text == token:
                    return token_id
        ids = self.encode(token)
        return ids[0] if len(ids) == 1 and self.decode(ids) == token else None


def repair(text: str) -> str:
    """Return ``text`` with surrogate pairs joined and lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _decoder_description(backend: tokenizers.Tokenizer) -> dict[str, Any] | None:
    decoder = backend.decoder
    if decoder is None:
        return None
    description: dict[str, Any] = json.loads(decoder.__getstate__())
    return description
