"""The calls of Step-3, in the markup that it calls StepML."""

from __future__ import annotations

import re

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .invokes import InvokeParser

BEGIN_CALLS, END_CALLS = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
BEGIN_CALL, END_CALL = "<｜tool_call_begin｜>", "<｜tool_call_end｜>"
SEPARATOR = "<｜tool_sep｜>"
INVOKE = "<steptml:invoke"

_WORDS = re.compile(r"[\w.:\s-]*")
_HEAD = Markers(BEGIN_CALLS, BEGIN_CALL, SEPARATOR, INVOKE)
_BETWEEN = Markers(BEGIN_CALL, END_CALLS)


class Step3ToolParser(InvokeParser):
    """``<steptml:invoke name="F"><steptml:parameter name="k">v</steptml:parameter></steptml:invoke>``.

    Around each call stand ``<｜tool_call_begin｜>function<｜tool_sep｜>``, perhaps with the name once more, and
    ``<｜tool_call_end｜>``; around all of them ``<｜tool_calls_begin｜>`` and ``<｜tool_calls_end｜>``. Any of these
    may be missing. White space of text values is data.
    """

    families = "Step-3"
    sample = (
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">'
        '<steptml:parameter name="city">Paris</steptml:parameter></steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>"
    )
    starts = (BEGIN_CALLS, BEGIN_CALL, INVOKE)
    special_tokens = (BEGIN_CALLS, END_CALLS, BEGIN_CALL, END_CALL, SEPARATOR)
    prefix = "steptml:"
    after_invoke = (END_CALL, END_CALLS, BEGIN_CALL)
    strays = (END_CALL, END_CALLS, f"</{prefix}invoke>")

    def calls(self, marker: str) -> Reading[None]:
        """Read one call after the other, and what stands around them."""
        tag = marker
        while True:
            while tag != INVOKE:  # what stands before it may come twice
                yield from self.run(_WORDS)
                tag = yield from self.tag(_HEAD)
            tag = yield from self.invokes()
            if tag == END_CALL:
                tag = yield from self.next_tag(_BETWEEN)
            if tag != BEGIN_CALL:
                return
