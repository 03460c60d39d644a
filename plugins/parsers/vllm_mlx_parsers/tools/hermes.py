"""Hermes calls, also written by Qwen2.5, Qwen3 (not Coder) and Granite 4."""

from __future__ import annotations

from typing import ClassVar

from .json_calls import JSONCallsParser


class HermesToolParser(JSONCallsParser):
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, one block for each call."""

    families = "Hermes 2 and 3, Qwen2.5, Qwen3 (not Coder), Granite 4, and models whose template knows no tools"
    sample = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    starts = ("<tool_call>",)
    ends = ("</tool_call>",)
    special_tokens: ClassVar[tuple[str, ...]] = (*starts, *ends)
