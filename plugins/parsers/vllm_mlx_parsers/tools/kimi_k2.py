"""Kimi K2: calls between tokens, each with an id that holds its name."""

from __future__ import annotations

import re
from itertools import count

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading
from vllm_mlx_parsers.scan import Markers

from .call_section import SectionToolParser
from .named_call import named_call

_ARGUMENTS = "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::(?P<number>[0-9]+))?")
_SPACE = re.compile(r"\s+")


class KimiK2ToolParser(SectionToolParser):
    """``functions.NAME:NUMBER`` and the arguments. That is also the id of the call, which the template wants back.

    White space in it is dropped. If the number is missing, or the id was used before, the call gets a free number.
    """

    families = "Kimi K2, K2-Thinking, K2.5"
    sample = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    section_begins = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
    section_ends = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
    call_begin = "<|tool_call_begin|>"
    call_end = "<|tool_call_end|>"
    special_tokens = (*section_begins, *section_ends, call_begin, call_end, _ARGUMENTS)

    _ends = Markers(call_end, call_begin, *section_ends)
    _id_ends = Markers(_ARGUMENTS, *_ends.markers)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._ids: set[str] = set()

    def call(self) -> Reading[str]:
        """Read id and arguments; see ``SectionToolParser``."""
        written, marker = yield from self.before(self._id_ends)
        match = _ID.fullmatch(_SPACE.sub("", written))
        if match is None or marker not in (_ARGUMENTS, self.call_end):
            raise Malformed
        self.pos -= 0 if marker == _ARGUMENTS else len(marker)
        name = match["name"]
        return (yield from named_call(self, name, self._ends, self._id(name, match["number"])))

    def _id(self, name: str, number: str | None) -> str:
        """Return the id of the next call. Mutates."""
        call_id = f"functions.{name}:{number}"
        if number is None or call_id in self._ids:
            free = (f"functions.{name}:{each}" for each in count(len(self._ids)))
            call_id = next(each for each in free if each not in self._ids)
        self._ids.add(call_id)
        return call_id
