"""Comparing token sequences fast: they are packed into bytes, so the interpreter never loops over tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

WIDTH = array("I").itemsize
"""Bytes a token."""

_BLOCK = 4096 * WIDTH


def pack(tokens: Sequence[int]) -> bytes:
    """Return ``tokens`` as bytes, ``WIDTH`` each. Raises OverflowError for a negative id."""
    return array("I", tokens).tobytes()


def common_prefix(left: bytes, right: bytes) -> int:
    """Return how many tokens two packed sequences have in common from the start."""
    end = min(len(left), len(right))
    start = 0
    while start < end and right.startswith(left[start : min(start + _BLOCK, end)], start):
        start += _BLOCK
    if start >= end:
        return end // WIDTH
    equal, differs = start // WIDTH, min(start + _BLOCK, end) // WIDTH  # the first difference is in [equal, differs)
    while differs - equal > 1:
        middle = (equal + differs) // 2
        if right.startswith(left[equal * WIDTH : middle * WIDTH], equal * WIDTH):
            equal = middle
        else:
            differs = middle
    return equal
