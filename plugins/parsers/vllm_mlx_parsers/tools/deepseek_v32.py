"""The calls of DeepSeek V3.2 and V4, in the markup that they call DSML."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .invokes import InvokeParser

DSML = "｜DSML｜"

_BLOCK = re.compile(r"[a-z_]*")


class DeepSeekV32ToolParser(InvokeParser):
    """``<｜DSML｜invoke name="F"><｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter></｜DSML｜invoke>``.

    Calls stand in a block, ``<｜DSML｜function_calls>`` in V3.2 and ``<｜DSML｜tool_calls>`` in V4; either may be
    missing. A parameter says itself whether it is text or JSON; the tool's schema decides only where it rules that out.
    """

    families = "DeepSeek V3.2, V4"
    sample = (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    )
    starts = (f"<{DSML}",)
    special_tokens = (DSML,)
    prefix = DSML
    after_invoke = (f"</{DSML}function_calls>", f"</{DSML}tool_calls>")
    strays = (*after_invoke, f"</{DSML}invoke>")

    _blocks = Markers(f"<{DSML}function_calls>", f"<{DSML}tool_calls>")

    def calls(self, marker: str) -> Reading[None]:
        """Read the calls of one block, and the tags around it."""
        word = yield from self.run(_BLOCK)
        if word != "invoke":
            yield from self.expect(">")
            yield from self.openings(self._blocks)
            yield from self.expect(self.invoke)
        yield from self.invokes()

    def text_type(self, attributes: Mapping[str, str]) -> bool | None:
        """Read the attribute ``string``."""
        return {"true": True, "false": False}.get(attributes.get("string", ""))
