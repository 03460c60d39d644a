"""Comparing token sequences fast: they are packed into bytes, so the interpreter never loops over tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

TOKEN_BYTES = array("I").itemsize
"""Bytes of a packed token."""

_BLOCK = 4096 * TOKEN_BYTES


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Return ``tokens`` as bytes, ``TOKEN_BYTES`` each. Raises OverflowError for a negative id."""
    return array("I", tokens).tobytes()


def common_prefix(left: bytes, right: bytes) -> int:
    """Return how many tokens two packed sequences have in common from the start."""
    end = min(len(left), len(right))
    start = 0
    while start < end and right.startswith(left[start : min(start + _BLOCK, end)], start):
        start += _BLOCK
    if start >= end:
        return end // TOKEN_BYTES
    equal, differs = (
        start // TOKEN_BYTES,
        min(start + _BLOCK, end) // TOKEN_BYTES,
    )  # the first difference is in [equal, differs)
    while differs - equal > 1:
        middle = (equal + differs) // 2
        if right.startswith(left[equal * TOKEN_BYTES : middle * TOKEN_BYTES], equal * TOKEN_BYTES):
            equal = middle
        else:
            differs = middle
    return equal
