"""Calls written as JSON objects, one after another or in a list: the base of Hermes and its many relatives."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import SPACE, Markers

from .call_parser import CallParser
from .json_call import JSONCall

_BETWEEN = re.compile(r"[ \t\r\n,;\]}]*")


class JSONCallsParser(CallParser):
    """Reads ``START {call} END`` and ``START [{call}, {call}] END``; subclass it and set ``starts`` and ``ends``.

    A call is complete when its object closes: brackets and closing markers that are missing do no harm, nor do commas
    too few or closing brackets too many.
    """

    _ends: ClassVar[Markers | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._ends = Markers(*cls.ends) if cls.ends else None

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
        if not begun:
            yield from self.spaces()
            if (yield from self.peek()) == "[":
                begun = "["
                self.pos += 1
        call = self.new_call()
        if begun == "{":
            call.feed(begun)
        while True:
            yield from self.json_call(call)
            between = yield from self.run(_BETWEEN)
            if (yield from self.peek()) != "{" or (begun == "[" and "]" in between):
                break
            call = self.new_call()
        if self._ends is None or not (yield from self.one_of(self._ends)):
            self.write(between[len(between.rstrip(SPACE)) :])
