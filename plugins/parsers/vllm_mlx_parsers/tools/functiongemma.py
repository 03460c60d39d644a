"""FunctionGemma calls."""

from __future__ import annotations

from .braces import BraceCallParser


class FunctionGemmaToolParser(BraceCallParser):
    """``<start_function_call>call:NAME{key:<escape>text<escape>,other:1}<end_function_call>``, one for each call.

    The model ends its turn with ``<start_function_response>``, in which the client's result is to stand.
    """

    families = "FunctionGemma"
    sample = "<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>"
    start = "<start_function_call>"
    end = "<end_function_call>"
    quote = "<escape>"
    stop_tokens = ("<start_function_response>",)
