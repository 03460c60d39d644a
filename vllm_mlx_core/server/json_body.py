"""What a JSON body may look like before anyone parses it: every parser after this one is safe from it.

This runs on the event loop, so it works on the bytes as a whole, in C, and costs the same for every body of one size.
"""

from __future__ import annotations

import re
from itertools import accumulate

from vllm_mlx_core.api import InvalidRequest

MAX_DEPTH = 100
"""Most objects and lists inside one another. Real requests stay below 30; recursive code fails above 200 or so."""
MAX_VALUES = 2_000_000
"""Most values in one body. Parsed, each takes up to a hundred bytes of memory, and the smallest takes two to send."""

_KEPT = b'"[]{},'
_ALL_BUT_KEPT = bytes(sorted(set(range(256)) - set(_KEPT)))
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_STEPS = bytes.maketrans(b"[],", b"\x01\xff\x00")  # as signed numbers: up, down, stay
_HIGH = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))


def sanitise(body: bytes) -> bytes:
    """Return the body, with half characters replaced.

    JavaScript clients that cut a text at a length send half an emoji, which no tokenizer can encode: it becomes
    U+FFFD. Raises InvalidRequest if the body is not UTF-8, nested more than MAX_DEPTH deep or holds more than
    MAX_VALUES values.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest("The request body is not valid UTF-8.") from error
    check_structure(body)
    if b"\\ud" in body or b"\\uD" in body:
        return _replace_half_characters(body)
    return body


def check_structure(body: bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES) -> None:
    """Raise InvalidRequest for JSON that is too deep or has too many values; broken JSON may pass or not."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= max_depth and opening + body.count(b",") < max_values:
        return  # even if none of them were inside of strings
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_BRACKETS, _ALL_BUT_KEPT)
    too_many = bare.count(b'"') > 4 * max_values  # as each value may be a string and have a key
    if not too_many:
        bare = b"".join(bare.split(b'"')[::2])  # what stands outside of strings
        too_many = bare.count(b"[") + bare.count(b",") >= max_values
    if too_many:
        raise InvalidRequest(f"The request body holds more than {max_values:,} values.")
    if max(accumulate(memoryview(bare.translate(_STEPS)).cast("b")), default=0) > max_depth:
        raise InvalidRequest(f"The request body is nested more than {max_depth} levels deep.")


def _replace_half_characters(body: bytes) -> bytes:
    if b"\0" in body:
        return body  # that is no JSON
    hidden = body.replace(rb"\\", b"\0")  # the second of two backslashes escapes nothing
    return _LONE.sub(rb"\\ufffd", hidden).replace(b"\0", rb"\\")
