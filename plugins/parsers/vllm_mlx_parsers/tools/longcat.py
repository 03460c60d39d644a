"""LongCat's calls: those of Hermes, in tags of their own."""

from __future__ import annotations

from .json_calls import JSONCallsParser


class LongCatToolParser(JSONCallsParser):
    """``<longcat_tool_call>{"name": …, "arguments": {…}}</longcat_tool_call>``, one block for each call."""

    families = "LongCat-Flash"
    sample = '<longcat_tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</longcat_tool_call>'
    starts = ("<longcat_tool_call>",)
    ends = ("</longcat_tool_call>",)
    special_tokens = (*starts, *ends)
