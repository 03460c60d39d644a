"""What a JSON body may look like before anyone parses it: every parser after this one is safe from it."""

from __future__ import annotations

import re

from vllm_mlx_core.api import InvalidRequest

MAX_DEPTH = 100
"""Most objects and lists inside one another. Real requests stay below 30; recursive code fails above 200 or so."""

_KEPT = b'"[]{}'
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_KEPT = bytes(sorted(set(range(256)) - set(_KEPT)))
_HIGH = rb"u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = rb"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"\\(?:" + _HIGH + rb"\\" + _LOW + rb"|(?P<lone>" + _HIGH + rb"|" + _LOW + rb")|.)", re.DOTALL)


def sanitise(body: bytes) -> bytes:
    """Return the body, with half characters replaced.

    JavaScript clients that cut a text at a length send half an emoji, which no tokenizer can encode: it becomes
    U+FFFD. Raises InvalidRequest if the body is not UTF-8 or nested more than MAX_DEPTH deep.
    """
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest("The request body is not valid UTF-8.") from error
    if exceeds_depth(body, MAX_DEPTH):
        raise InvalidRequest(f"The request body is nested more than {MAX_DEPTH} levels deep.")
    if b"\\ud" in body or b"\\uD" in body:
        return _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], body)
    return body


def exceeds_depth(body: bytes, limit: int) -> bool:
    """Return whether JSON is nested more than ``limit`` deep; broken JSON may give either answer.

    Works on the brackets alone, in C: each pass takes away every innermost pair.
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    bare = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_BRACKETS, _ALL_BUT_KEPT)
    bare = b"".join(bare.split(b'"')[::2])  # what stands outside of strings
    for _ in range(limit):
        if not bare:
            return False
        bare = bare.replace(b"[]", b"")
    return b"[" in bare
