"""The calls of MiniCPM5."""

from __future__ import annotations

from vllm_mlx_parsers.grammar import Reading, Unfinished
from vllm_mlx_parsers.scan import Markers

from .invokes import InvokeParser

_START = "<function name="
_CDATA, _END_CDATA = "<![CDATA[", "]]>"
_CDATA_ENDS = Markers(_END_CDATA)


class MiniCPM5ToolParser(InvokeParser):
    """``<function name="F"><param name="k">v</param></function>``, only for declared names: nothing stands around it.

    A value with ``<``, ``&`` or a newline is written as ``<![CDATA[v]]>``; there only ``]]></param>`` ends it. All
    white space of a text value is data.
    """

    families = "MiniCPM5"
    sample = '<function name="get_weather"><param name="city">Paris</param></function>'
    starts = (_START,)
    names = ("function", "param")
    strays = ("</function>",)
    bare = True

    def calls(self, marker: str) -> Reading[None]:
        """Read one call, and those that follow."""
        yield from self.invokes(marker.removeprefix(self.invoke))

    def parameter(self, name: str, *, is_text: bool | None = None) -> Reading[str]:
        """Read one value, which may be written as CDATA; see ``ParameterParser``."""
        if not (yield from self.take(_CDATA)):
            return (yield from super().parameter(name, is_text=is_text))
        value = yield from self.new_value(name, is_text)
        while (yield from self.until_end(_CDATA_ENDS, value)):
            space = yield from self.spaces()
            if (yield from self.take(self.end_parameter)):
                value.end()
                return self.end_parameter
            value.add(_END_CDATA + space)
        raise Unfinished
