"""ERNIE 4.5's calls: those of Hermes, beside an answer in tags."""

from __future__ import annotations

from typing import ClassVar

from .hermes import HermesToolParser


class Ernie45ToolParser(HermesToolParser):
    """``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, one block for each call.

    The thinking models write their answer as ``<response>…</response>``; these tags are not content.
    """

    families = "ERNIE 4.5"
    frame = ("<response>", "</response>")
    special_tokens: ClassVar[tuple[str, ...]] = (*HermesToolParser.special_tokens, *frame)
