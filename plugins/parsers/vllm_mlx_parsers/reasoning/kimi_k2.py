"""Kimi K2 Thinking reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class KimiK2ReasoningParser(TaggedReasoningParser):
    """``<think>reasoning</think>answer``. The prompt says nothing; the model opens the block itself. Without tags all
    is answer: the instruct models do not think.
    """

    start = "<think>"
    end = "</think>"
    inline = True
    families = "Kimi K2 Thinking, Kimi K2.5"
    sample = "<think>A greeting.</think>Hello!"
