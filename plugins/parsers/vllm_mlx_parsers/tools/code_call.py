"""Calls of a code interpreter, whose one argument is the source code as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from vllm_mlx_parsers.grammar import Reading, Unfinished
from vllm_mlx_parsers.scan import Markers
from vllm_mlx_parsers.schema import json_text

from .call_parser import CallParser


def code_call(parser: CallParser, name: str, ends: Markers, begun: str = "") -> Reading[None]:
    """Read code up to one of ``ends``, which is not read, and give a call with it as argument ``code`` to ``parser``.

    ``begun`` is code that was read already. Raises Unfinished if the stream ends before: nothing else tells whether
    code is complete.
    """
    if not (yield from parser.peek()):
        raise Unfinished
    parser.start_call(name)
    parser.arguments('{"code":"' + json_text(begun)[1:-1])
    while True:
        found = ends.find(parser.text, parser.pos, ended=parser.ended)
        if found.stop > parser.pos:
            parser.arguments(json_text(parser.text[parser.pos : found.stop])[1:-1])
        parser.pos = found.stop
        if found.marker:
            break
        if parser.ended:
            raise Unfinished
        parser.pass_arguments_on(_plain_code(ends))
        yield
    parser.arguments('"}')
    parser.end_call()


@cache
def _plain_code(ends: Markers) -> Callable[[str], object]:
    """Return a test for text that begins no end and holds nothing that JSON escapes."""
    return re.compile(f'[^{re.escape(ends.first)}"\\\\\x00-\x1f]+').fullmatch
