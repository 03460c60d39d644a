"""MiniMax M3 reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class MiniMaxM3ReasoningParser(TaggedReasoningParser):
    """``<mm:think>reasoning</mm:think>answer``.

    The prompt ends with ``<mm:think>`` if thinking is on and with a lone ``</mm:think>`` if it is off. Else the model
    decides: it opens the block, writes a lone closing tag, or just answers.
    """

    start = "<mm:think>"
    end = "</mm:think>"
    inline = True
    families = "MiniMax M3"
    sample = "<mm:think>A greeting.</mm:think>Hello!"
