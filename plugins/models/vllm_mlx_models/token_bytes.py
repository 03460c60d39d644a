"""The bytes a token stands for, told by the kind of decoder a tokenizer has.

- Byte-level BPE writes every byte as one printable character.
- SentencePiece-style vocabularies write a space as ``▁`` and a lone byte as ``<0xNN>``.

Of any other decoder (WordPiece joins words, suffix BPE looks at neighbours) nothing is claimed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenAlphabet(ABC):
    """How a vocabulary spells bytes."""

    @abstractmethod
    def to_bytes(self, token: str) -> bytes:
        """Return the bytes that ``token`` adds in the middle of a text."""

    @abstractmethod
    def spellings(self, text: str) -> Iterator[str]:
        """Yield the vocabulary entries that could stand for exactly ``text``, the likeliest first."""


class ByteLevel(TokenAlphabet):
    """GPT-2's alphabet: one printable character for each byte."""

    def to_bytes(self, token: str) -> bytes:
        """Return one byte for each character."""
        table = _byte_of()
        try:
            return bytes(table[character] for character in token)
        except KeyError:  # an added token with characters outside the alphabet is plain text
            return token.encode()

    def spellings(self, text: str) -> Iterator[str]:
        """Yield the one spelling there is."""
        characters = _character_of()
        yield "".join(characters[byte] for byte in text.encode("utf-8", "replace"))


class SentencePiece(TokenAlphabet):
    """``▁`` for a space; with byte fallback, ``<0xNN>`` for one byte."""

    def __init__(self, *, byte_fallback: bool) -> None:
        self._byte_fallback = byte_fallback

    def to_bytes(self, token: str) -> bytes:
        """Return the byte of a byte token, else the text's bytes."""
        if self._byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace("▁", " ").encode()

    def spellings(self, text: str) -> Iterator[str]:
        """Yield the plain spelling, then a byte token."""
        yield text.replace(" ", "▁")
        data = text.encode("utf-8", "replace")
        if self._byte_fallback and len(data) == 1:
            yield f"<0x{data[0]:02X}>"


def alphabet_of(decoder: Mapping[str, Any] | None) -> TokenAlphabet | None:
    """Return the alphabet for a decoder as tokenizer.json describes it, or None if tokens depend on neighbours."""
    parts = list(_flatten(decoder))
    kinds = {part.get("type") for part in parts}
    if kinds == {"ByteLevel"}:
        return ByteLevel()
    if "Metaspace" in kinds and kinds <= {"Metaspace", "ByteFallback", "Fuse", "Strip"}:
        if any(part.get("replacement", "▁") != "▁" for part in parts if part.get("type") == "Metaspace"):
            return None
        return SentencePiece(byte_fallback="ByteFallback" in kinds)
    if "Replace" in kinds and kinds <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        replaced = [(part["pattern"].get("String"), part["content"]) for part in parts if part["type"] == "Replace"]
        if replaced == [("▁", " ")]:
            return SentencePiece(byte_fallback="ByteFallback" in kinds)
    return None


def _flatten(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if decoder is None:
        return
    if decoder.get("type") == "Sequence":
        for part in decoder.get("decoders", ()):
            yield from _flatten(part)
    else:
        yield decoder


@cache
def _character_of() -> dict[int, str]:
    """Printable Latin-1 stands for itself; the other bytes follow from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    table, spare = {}, 0x100
    for byte in range(256):
        if byte in printable:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


@cache
def _byte_of() -> dict[str, int]:
    return {character: byte for byte, character in _character_of().items()}
