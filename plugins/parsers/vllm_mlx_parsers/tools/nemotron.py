"""Nemotron's calls: a JSON list in version 2, tagged parameters in version 3."""

from __future__ import annotations

from typing import Any

from vllm_mlx_parsers.grammar import Reading

from .json_calls import JSONCallsParser
from .qwen3_coder import Qwen3CoderToolParser

_LIST = "<TOOLCALL>"
_LIST_END = "</TOOLCALL>"


class _ListParser(JSONCallsParser):
    """Adds ``<TOOLCALL>[…]</TOOLCALL>`` to the markers of another parser."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.starts = (_LIST, *cls.starts)
        cls.ends = (*cls.ends, _LIST_END)
        cls.special_tokens = (_LIST, _LIST_END, *cls.special_tokens)
        super().__init_subclass__(**kwargs)

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls."""
        self.bare = False
        yield from self.json_calls()


class NemotronToolParser(Qwen3CoderToolParser, _ListParser):
    """``<TOOLCALL>[{"name": …, "arguments": {…}}, …]</TOOLCALL>``; Nemotron 3 writes what Qwen3-Coder does."""

    families = "Nemotron Nano 2, Nemotron 3"
    sample = '<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>'

    def calls(self, marker: str) -> Reading[None]:
        """Read a list, or calls with tagged parameters."""
        reader = _ListParser if marker == _LIST else Qwen3CoderToolParser
        yield from reader.calls(self, marker)
