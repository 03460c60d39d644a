"""Granite's calls before version 4."""

from __future__ import annotations

from .json_calls import JSONCallsParser


class GraniteToolParser(JSONCallsParser):
    """``<|tool_call|>[{"name": …, "arguments": {…}}, …]``, without an end marker.

    Granite 3.0 writes ``<tool_call>[…]``, Granite 4 ``<tool_call>{…}</tool_call>``, and granite-20b-functioncalling
    ``<function_call> {…}``, repeated. Every marker may be followed by one call or a list.
    """

    families = "Granite 3, granite-20b-functioncalling"
    sample = '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]'
    starts = ("<|tool_call|>", "<tool_call>", "<function_call>")
    ends = ("</tool_call>",)
    special_tokens = (*starts, *ends)
