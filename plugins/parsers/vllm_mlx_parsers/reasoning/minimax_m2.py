"""MiniMax M2 reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class MiniMaxM2ReasoningParser(TaggedReasoningParser):
    r"""``<think>\nreasoning\n</think>\n\nanswer``. The model always thinks, and its prompt always opens the block; so
    text before a ``</think>`` is reasoning also where the prompt did not.
    """

    start = "<think>"
    end = "</think>"
    assumed_open = True
    families = "MiniMax M2, MiniMax M2.5"
    sample = "A greeting.\n</think>\n\nHello!"
