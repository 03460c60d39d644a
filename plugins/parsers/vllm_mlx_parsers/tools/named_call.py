"""A call whose arguments stand alone after its name, as one JSON value."""

from __future__ import annotations

import re
from functools import cache

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import JSONScanner, as_object
from vllm_mlx_parsers.scan import SPACE, Markers

from .call_parser import CallParser

_FENCE = "```"
_LANGUAGE = re.compile("[A-Za-z]*")
_SURPLUS = re.compile(r"[ \t\r\n}\]]*")


def named_call(parser: CallParser, name: str, ends: Markers, call_id: str = "") -> Reading[str]:
    """Read the arguments of a call and give the whole call to ``parser``; an object streams while it comes.

    They may stand in a code fence. An object inside a JSON string is decoded. Null is ``{}``, and so is nothing if one
    of ``ends``, which is not read, stands in its place. Closing brackets that are missing are added where one of
    ``ends`` follows, surplus ones are dropped; returns the white space at their end. Raises Malformed, Unfinished.
    """
    yield from parser.spaces()
    if fenced := (yield from parser.take(_FENCE)):
        yield from parser.run(_LANGUAGE)
        yield from parser.spaces()
    char = yield from parser.peek()
    if not char:
        raise Unfinished
    if char == "{":
        parser.start_call(name, call_id)
        yield from parser.json_arguments(JSONScanner(), _with_fence(ends) if fenced else ends)
    else:
        arguments = "{}" if fenced and char == "`" else (yield from _other_arguments(parser, char, ends))
        parser.start_call(name, call_id)
        parser.arguments(arguments)
    parser.end_call()
    dropped = yield from parser.run(_SURPLUS)
    if fenced and (yield from parser.take(_FENCE)):
        dropped = yield from parser.run(_SURPLUS)
    return dropped[len(dropped.rstrip(SPACE)) :]


@cache
def _with_fence(ends: Markers) -> Markers:
    return Markers(*ends.markers, _FENCE)


def _other_arguments(parser: CallParser, char: str, ends: Markers) -> Reading[str]:
    if (yield from parser.ahead(ends)):
        return "{}"
    if char == "n":
        yield from parser.expect("null")
        return "{}"
    if char not in ('"', "["):
        raise Malformed
    scanner = JSONScanner()
    yield from parser.scan(scanner)
    arguments = as_object(scanner.take())
    if arguments is None:
        raise Malformed
    return arguments
