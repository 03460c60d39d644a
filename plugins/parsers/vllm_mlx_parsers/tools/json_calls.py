"""Calls written as JSON objects, one after another or in a list: the base of Hermes and its many relatives."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import SPACE, Markers

from .call_parser import CallParser
from .json_call import JSONCall

_BRACES = re.compile(r"\{*")
_BETWEEN = re.compile(r"[ \t\r\n,;\]}]*")
_LANGUAGE = re.compile("[A-Za-z]*")
_FENCE = "```"


class JSONCallsParser(CallParser):
    """Reads ``START {call} END`` and ``START [{call}, {call}] END``; subclass it and set ``starts`` and ``ends``.

    A call is complete when its object closes: brackets and closing markers that are missing do no harm, nor do commas
    too few or closing brackets too many. Brackets that are missing inside a call are added where a marker follows. All
    may stand in a code fence between the markers, and markers may come twice.
    """

    _ends: ClassVar[Markers | None] = None
    _marked: ClassVar[Markers | None] = None
    _after_call: ClassVar[Markers | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.restarts = tuple(start for start in getattr(cls, "starts", ()) if len(start) > 1)
        super().__init_subclass__(**kwargs)
        cls._ends = _markers(*cls.ends)
        cls._marked = _markers(*cls.restarts)
        cls._after_call = _markers(*cls.ends, *cls.restarts, *cls.stop_tokens)

    def calls(self, marker: str) -> Reading[None]:
        """Read one call or several, and the closing marker."""
        yield from self.json_calls()

    def new_call(self) -> JSONCall:
        """Return what reads the next call."""
        return JSONCall()

    def json_calls(self, begun: str = "") -> Reading[None]:
        """Read a call, or one after another, or a list of them, and the closing marker if it is there.

        ``begun`` is the opening bracket, if that was read already. Raises Malformed, Unfinished.
        """
        fenced = False
        if not begun:
            if self._marked is None:
                yield from self.spaces()
            else:
                yield from self.openings(self._marked)
            if fenced := (yield from self.take(_FENCE)):
                yield from self.run(_LANGUAGE)
                yield from self.spaces()
            if (yield from self.peek()) == "[":
                begun = "["
                self.pos += 1
                yield from self.spaces()
        call = yield from self._begin_call(begun)
        while True:
            yield from self.json_call(call, self._after_call)
            between = yield from self.run(_BETWEEN)
            if (yield from self.peek()) != "{" or (begun == "[" and "]" in between):
                break
            call = yield from self._begin_call()
        if fenced and (yield from self.take(_FENCE)):
            between = yield from self.spaces()
        if self._ends is None or not (yield from self.one_of(self._ends)):
            self.write(between[len(between.rstrip(SPACE)) :])

    def _begin_call(self, begun: str = "") -> Reading[JSONCall]:
        """Return what reads the next call, its brace read: some models write two, because templates show two."""
        call = self.new_call()
        if begun == "{":
            call.feed(begun)
        elif not self.bare:
            call.feed((yield from self.run(_BRACES))[:1])
        return call


def _markers(*markers: str) -> Markers | None:
    return Markers(*markers) if markers else None
