"""Gemma 4 calls."""

from __future__ import annotations

from .braces import BraceCallParser


class Gemma4ToolParser(BraceCallParser):
    """``<|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>``, one for each call.

    The model ends its turn with ``<|tool_response>``, in which the client's result is to stand.
    """

    families = "Gemma 4"
    sample = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'
    start = "<|tool_call>"
    end = "<tool_call|>"
    quote = '<|"|>'
    stop_tokens = ("<|tool_response>",)
