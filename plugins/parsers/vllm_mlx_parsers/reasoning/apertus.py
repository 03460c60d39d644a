"""Apertus reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class ApertusReasoningParser(TaggedReasoningParser):
    """``<|inner_prefix|>reasoning<|inner_suffix|>answer``. The model opens the block itself, if it is to deliberate.

    It may call tools within the block, which then stays open.
    """

    start = "<|inner_prefix|>"
    end = "<|inner_suffix|>"
    inline = True
    families = "Apertus"
    sample = "<|inner_prefix|>A greeting.<|inner_suffix|>Hello!"
