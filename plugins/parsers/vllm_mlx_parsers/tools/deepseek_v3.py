"""DeepSeek V3 and R1-0528: calls between tokens, with the arguments in a code fence."""

from __future__ import annotations

import re

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .call_section import SectionToolParser
from .named_call import named_call

_SEPARATOR = "<｜tool▁sep｜>"
_WORD = re.compile(r"[^\s<{`]+")
_TICKS = re.compile("`+")


class DeepSeekV3ToolParser(SectionToolParser):
    """A type (``function``), a separator, the name, and the arguments in a fence, which may be missing.

    Also reads the form of V3.1, name, separator and arguments: what follows the separator tells them apart.
    """

    families = "DeepSeek V3 and R1-0528"
    sample = (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    )
    section_begins = ("<｜tool▁calls▁begin｜>",)
    section_ends = ("<｜tool▁calls▁end｜>",)
    call_begin = "<｜tool▁call▁begin｜>"
    call_end = "<｜tool▁call▁end｜>"
    special_tokens = (*section_begins, *section_ends, call_begin, call_end, _SEPARATOR)

    _ends = Markers(call_end, call_begin, *section_ends)

    def call(self) -> Reading[str]:
        """Read name and arguments; see ``SectionToolParser``."""
        name = yield from self._word()
        yield from self.expect(_SEPARATOR)
        yield from self.spaces()
        if name in ("function", "") and (yield from self.peek()) not in ("{", "`"):
            name = yield from self._word()
        yield from self.take("json")  # all that was left of a fence
        space = yield from named_call(self, name, self._ends)
        if (yield from self.run(_TICKS)):  # of a fence that nothing opened
            space = yield from self.spaces()
        return space

    def _word(self) -> Reading[str]:
        """Read a word and the white space around it."""
        yield from self.spaces()
        word = yield from self.run(_WORD)
        yield from self.spaces()
        return word
