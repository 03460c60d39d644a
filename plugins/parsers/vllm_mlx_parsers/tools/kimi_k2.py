"""Kimi K2: calls between tokens, each with an id that holds its name."""

from __future__ import annotations

import re
from itertools import count

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.scan import SPACE, Markers

from .call_section import SectionToolParser
from .named_call import named_call

_ARGUMENTS = "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::(?P<number>[0-9]+))?")
_PART = re.compile(f"[^{SPACE}<]+")


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
    _after_id = Markers(call_end)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._used_ids: set[str] = set()

    def call(self) -> Reading[str]:
        """Read id and arguments; see ``SectionToolParser``."""
        written = yield from self._written_id()
        match = _ID.fullmatch(written)
        if match is None:
            raise Malformed
        if not (yield from self.take(_ARGUMENTS)) and not (yield from self.ahead(self._after_id)):
            raise Unfinished if self.pos == len(self.text) else Malformed
        name = match["name"]
        return (yield from named_call(self, name, self._ends, self._id(name, match["number"])))

    def _written_id(self) -> Reading[str]:
        """Read an id without the white space next to its punctuation. Raises Malformed, Unfinished."""
        yield from self.spaces()
        written = ""
        while True:
            written += yield from self.run(_PART)
            yield from self.spaces()
            following = yield from self.peek()
            if not following:
                raise Unfinished
            if following == "<":
                return written
            if not (written.endswith((".", ":")) or following in ".:"):
                raise Malformed

    def _id(self, name: str, number: str | None) -> str:
        """Return the id of the next call. Mutates."""
        call_id = f"functions.{name}:{number}"
        if number is None or call_id in self._used_ids:
            free = (f"functions.{name}:{each}" for each in count(len(self._used_ids)))
            call_id = next(each for each in free if each not in self._used_ids)
        self._used_ids.add(call_id)
        return call_id
