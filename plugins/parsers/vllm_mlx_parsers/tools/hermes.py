"""Hermes calls, also written by Qwen2.5, Qwen3 (not Coder), Granite 4 and ERNIE 4.5."""

from __future__ import annotations

from .tagged_json import TaggedJSONToolParser


class HermesToolParser(TaggedJSONToolParser):
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, one block for each call."""

    start = "<tool_call>"
    end = "</tool_call>"
