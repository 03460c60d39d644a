"""The calls of Kimi K3, and the segments that its answers consist of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import PLAIN_STRING, JSONScanner
from vllm_mlx_parsers.scan import Markers

from .invokes import parse_attributes
from .parameters import ParameterParser

OPEN, CLOSE, SEPARATOR, END_OF_MESSAGE = "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"
ARGUMENT, JSON = f"{OPEN}argument", f"{OPEN}json"
END_CALL, END_ARGUMENT, END_JSON = (f"{CLOSE}{name}{SEPARATOR}" for name in ("call", "argument", "json"))

_HEADER = Markers(SEPARATOR)
_BODY = Markers(ARGUMENT, JSON, END_CALL)
_SEGMENTS = frozenset({"message", "think", "response", "tools"})
_SEGMENT = re.compile(r"[a-z_]*")


class KimiK3ToolParser(ParameterParser):
    """``<|open|>call tool="F" index="1"<|sep|>``, arguments, ``<|close|>call<|sep|>``, in the segment ``tools``.

    - An argument is ``<|open|>argument key="k" type="string"<|sep|>v<|close|>argument<|sep|>``; what is no string is
      JSON. All of them may instead stand in one ``json`` segment.
    - What opens and closes the segments of a message is dropped, the text inside is content. As special tokens mean
      nothing else, that is so in code fences as well.
    """

    families = "Kimi K3"
    sample = (
        '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"'
        "<|sep|>Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
    )
    starts = (OPEN, CLOSE, END_OF_MESSAGE)
    special_tokens = (OPEN, CLOSE, SEPARATOR, END_OF_MESSAGE)
    stop_tokens = (END_OF_MESSAGE,)
    fences = False
    value_ends: ClassVar[Mapping[str, Markers]] = {END_ARGUMENT: _BODY, END_CALL: Markers(OPEN, CLOSE)}

    def calls(self, marker: str) -> Reading[None]:
        """Read what opens or closes a segment, and if it is a call, all of that."""
        if marker == END_OF_MESSAGE:
            return
        segment = yield from self.run(_SEGMENT)
        if marker == OPEN and segment == "call" and (yield from self.peek()) != "<":
            yield from self._call((yield from self._header()))
            return
        if self.pos == len(self.text):
            raise Unfinished
        if segment not in _SEGMENTS:
            raise Malformed
        yield from self.expect(SEPARATOR)

    def _call(self, header: Mapping[str, str]) -> Reading[None]:
        self.start_call(header.get("tool", ""))
        tag = yield from self.tag(_BODY)
        if tag == JSON:
            yield from self._json()
            return
        while tag == ARGUMENT:
            header = yield from self._header()
            if "key" not in header:
                raise Malformed
            said = header.get("type")
            tag = yield from self.parameter(header["key"], is_text=None if said is None else said == "string")
            if tag == END_ARGUMENT:
                tag = yield from self.tag(_BODY)
        if tag != END_CALL:
            raise Malformed
        self.end_parameters()

    def _json(self) -> Reading[None]:
        """Read all arguments as one object, and what closes the segment and the call."""
        yield from self._header()
        yield from self.spaces()
        if (yield from self.peek()) not in ("{", ""):
            raise Malformed
        yield from self.scan_arguments(JSONScanner(), PLAIN_STRING.fullmatch)
        self.end_call()
        for end in (END_JSON, END_CALL):
            yield from self.spaces()
            yield from self.take(end)

    def _header(self) -> Reading[Mapping[str, str]]:
        """Read the attributes of a segment, and the separator that ends them."""
        return parse_attributes((yield from self.before(_HEADER))[0])
