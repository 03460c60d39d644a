"""A call whose arguments stand alone after its name, as one JSON value."""

from __future__ import annotations

import re

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import PLAIN_STRING, JSONScanner, decode_string, repair_object
from vllm_mlx_parsers.scan import SPACE, Markers

from .call_parser import CallParser

_SURPLUS = re.compile(r"[ \t\r\n}\]`]*")
_plain_string = PLAIN_STRING.fullmatch


def named_call(parser: CallParser, name: str, ends: Markers, call_id: str = "") -> Reading[str]:
    """Read the arguments of a call and give the whole call to ``parser``; an object streams while it comes.

    An object inside a JSON string is decoded. Null is ``{}``, and so is nothing if one of ``ends``, which is not read,
    stands in its place. Surplus brackets and backticks after the arguments are dropped; returns the white space at
    their end. Raises Malformed, Unfinished.
    """
    yield from parser.spaces()
    char = yield from parser.peek()
    if not char:
        raise Unfinished
    if char == "{":
        parser.start_call(name, call_id)
        yield from parser.scan_arguments(JSONScanner(), _plain_string)
    else:
        arguments = yield from _other_arguments(parser, char, ends)
        parser.start_call(name, call_id)
        parser.arguments(arguments)
    parser.end_call()
    surplus = yield from parser.run(_SURPLUS)
    return surplus[len(surplus.rstrip(SPACE)) :]


def _other_arguments(parser: CallParser, char: str, ends: Markers) -> Reading[str]:
    if char == '"':
        scanner = JSONScanner()
        yield from parser.scan(scanner)
        text = decode_string(scanner.take())
        arguments = repair_object(text) if text.strip(SPACE) else "{}"
        if arguments is None:
            raise Malformed
        return arguments
    if char == "n":
        yield from parser.expect("null")
        return "{}"
    marker = yield from parser.one_of(ends)
    if not marker:
        raise Malformed
    parser.pos -= len(marker)
    return "{}"
