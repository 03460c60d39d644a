"""Step reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class Step3p5ReasoningParser(TaggedReasoningParser):
    r"""``<think>\nreasoning\n</think>\nanswer``. The model always thinks, and its prompt always opens the block; so
    text before a ``</think>`` is reasoning also where the prompt did not.
    """

    start = "<think>"
    end = "</think>"
    assumed_open = True
    families = "Step-3.5, Step-3"
    sample = "A greeting.\n</think>\nHello!"
