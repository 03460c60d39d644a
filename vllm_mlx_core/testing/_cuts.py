"""Texts cut into pieces: everywhere, anywhere, and about where tokenizers do."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence


def pieces(text: str, width: int) -> Iterator[str]:
    """Yield a text in pieces of ``width`` characters."""
    return (text[start : start + width] for start in range(0, len(text), width))


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    """Return a text cut at these places: one more piece than there are places, some of them empty."""
    bounds = [0, *cuts, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def tokens(text: str, markers: Iterable[str]) -> list[str]:
    """Cut a text about where tokenizers do: markers, words with the space before them, runs of punctuation."""
    found: list[str] = []
    for i, part in enumerate(re.split(f"({any_of(markers)})", text)):
        found += [part] if i % 2 else re.findall(r" ?\w+| ?[^\w\s]+|\s+", part)
    return found


def any_of(markers: Iterable[str]) -> str:
    """Return a regular expression for the longest of ``markers`` at a place; for none, one that fits nothing."""
    return "|".join(re.escape(marker) for marker in sorted(markers, key=len, reverse=True)) or "(?!)"
