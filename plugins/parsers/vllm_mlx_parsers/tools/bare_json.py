"""Calls written as JSON without any marker: the base of the formats in which only the name tells a call from data."""

from __future__ import annotations

import re
from typing import ClassVar

from vllm_mlx_core.api import TextDelta
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import JSONScanner
from vllm_mlx_parsers.scan import SPACE, Markers

from .json_call import JSONCall
from .json_calls import JSONCallsParser

_OPENING = ("{", "[")
_INFO = re.compile(r"[\w+-]*")
_FENCE_END = Markers("```")
_TICKS = re.compile("`*")
_plain_string = re.compile(rf'[^"\\\x00-\x1f]*[^"\\\x00-\x1f{SPACE}]').fullmatch


class BareJSONParser(JSONCallsParser):
    """Reads ``{call}``, ``[{call}, …]`` and ``{"tool_calls": [{call}, …]}`` that stand in the text as they are.

    A call must name a declared tool, have arguments, and have no other members but an id and a type. JSON that is no
    call is content to its end, without a look at what is nested in it, and so is all JSON in code spans. Subclasses
    may add markers to ``starts``; what follows those is read by the rules for marked calls.
    """

    starts: ClassVar[tuple[str, ...]] = _OPENING
    bare = True

    def calls(self, marker: str) -> Reading[None]:
        """Read calls that begin with a bracket, after the opening of a code fence, or after a marker."""
        fenced = marker.startswith("`")
        self.bare = fenced or marker in _OPENING
        if not self.bare:
            yield from self.json_calls()
        elif fenced:
            yield from self._fenced_calls()
        elif self._code.span:
            raise Malformed
        else:
            try:
                yield from self._bare_calls(marker)
            except Unfinished:
                raise
            except Malformed:
                yield from self._pass_json_on()

    def new_call(self) -> JSONCall:
        """Return what reads the next call: a stricter reader if nothing marks it."""
        if not self.bare:
            return super().new_call()
        return JSONCall(argument_keys=("arguments", "parameters"), declared=self.context.declares)

    def _bare_calls(self, bracket: str) -> Reading[None]:
        if bracket == "{":
            yield from self.spaces()
            if (yield from self.take('"tool_calls"')):
                yield from self.spaces()
                yield from self.expect(":")
                yield from self.spaces()
                yield from self.expect("[")
                bracket = "["
        yield from self.json_calls(bracket)

    def _fenced_calls(self) -> Reading[None]:
        yield from self.run(_INFO)
        yield from self.spaces()
        bracket = yield from self.peek()
        if bracket not in _OPENING:
            raise Malformed if bracket else Unfinished
        self.pos += 1
        yield from self._bare_calls(bracket)
        space = yield from self.spaces()
        if (yield from self.one_of(_FENCE_END)):
            yield from self.run(_TICKS)
        else:
            self.write(space)

    def _pass_json_on(self) -> Reading[None]:
        """Pass on what was read since the last call, and the rest of the JSON value that it begins."""
        raw = self.recorded()
        self._open = False
        self.write(raw)
        scanner = JSONScanner()
        scanner.feed(raw)
        while not scanner.done and not scanner.broken:
            start = self.pos
            self.pos = scanner.feed(self.text, start)
            scanner.take()
            self.write(self.text[start : self.pos])
            if self.ended:
                return
            if self.pos == len(self.text):
                if scanner.in_string and not self._space:
                    self.pass_on(_plain_string, TextDelta)
                yield
