"""Phi-4-mini's calls: a JSON list after a word."""

from __future__ import annotations

from vllm_mlx_parsers.grammar import Reading

from .json_calls import JSONCallsParser

_FUNCTOOLS = ("functools[", "functools [", "functools\n[")


class Phi4MiniToolParser(JSONCallsParser):
    """``functools[{"name": …, "arguments": {…}}, …]``, or such a list between the tokenizer's own call tokens."""

    families = "Phi-4-mini, Firefunction v2"
    sample = 'functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]'
    starts = (*_FUNCTOOLS, "<|tool_call|>")
    ends = ("<|/tool_call|>",)
    special_tokens = ("<|tool_call|>", *ends)

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls."""
        yield from self.json_calls("[" if marker in _FUNCTOOLS else "")
