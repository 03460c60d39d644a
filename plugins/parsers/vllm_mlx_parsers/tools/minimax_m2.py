"""The calls of MiniMax M2."""

from __future__ import annotations

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .invokes import InvokeParser

START, END = "<minimax:tool_call>", "</minimax:tool_call>"
_START = Markers(START)


class MiniMaxM2ToolParser(InvokeParser):
    """``<minimax:tool_call><invoke name="F"><parameter name="k">v</parameter></invoke></minimax:tool_call>``.

    Several calls may stand in one block. All white space of a text value is data. A call in the Hermes form inside the
    block is read as well.
    """

    families = "MiniMax M2, M2.1, M2.5"
    sample = (
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
        "</invoke>\n</minimax:tool_call>"
    )
    starts = (START,)
    special_tokens = (START, END)
    after_invoke = (END,)
    strays = (END, "</invoke>")

    def calls(self, marker: str) -> Reading[None]:
        """Read the calls of one block."""
        yield from self.openings(_START)
        if (yield from self.peek()) == "{":
            yield from self.hermes_call(END)
            return
        yield from self.expect(self.invoke)
        yield from self.invokes()
