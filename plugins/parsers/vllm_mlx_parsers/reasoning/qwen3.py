"""``<think>`` reasoning as Qwen3 writes it, and most other families."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class Qwen3ReasoningParser(TaggedReasoningParser):
    r"""``<think>\nreasoning\n</think>\n\nanswer``.

    The model opens the block itself, or the prompt has (Qwen3.5 and the thinking-only models), or the prompt ends with
    an empty block (``enable_thinking`` false). Where neither is the case and there are no tags, all is answer.
    """

    start = "<think>"
    end = "</think>"
    families = "Qwen3, Qwen3.5, QwQ, SmolLM3, LFM2.5, EXAONE 4, Ling, MiMo, MiniCPM and others"
    sample = "<think>\nA greeting.\n</think>\n\nHello!"
