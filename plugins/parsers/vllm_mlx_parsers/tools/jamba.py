"""Jamba's calls: a JSON list between tags."""

from __future__ import annotations

from .json_calls import JSONCallsParser


class JambaToolParser(JSONCallsParser):
    """``<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>``; MiniMax M1 writes one object a line instead."""

    families = "Jamba, Apriel, MiniMax M1"
    sample = '<tool_calls>[\n    {"name": "get_weather", "arguments": {"city": "Paris"}}\n]</tool_calls>'
    starts = ("<tool_calls>",)
    ends = ("</tool_calls>",)
    special_tokens = (*starts, *ends)
