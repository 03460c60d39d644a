"""``<think>`` reasoning: Qwen3, DeepSeek-R1, GLM-4.5 and later, Nemotron, MiniMax M2 and many others."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class Qwen3ReasoningParser(TaggedReasoningParser):
    """``<think>reasoning</think>answer``."""

    start = "<think>"
    end = "</think>"
