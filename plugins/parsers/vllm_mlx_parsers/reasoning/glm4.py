"""GLM reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class GLM4ReasoningParser(TaggedReasoningParser):
    """``<think>reasoning</think>answer``.

    GLM-4.5 and 4.6 open the block themselves, for GLM-4.7 and later the prompt does. Thinking is switched off by an
    empty block, or by a lone ``</think>`` at the end of the prompt. Without tags all is answer.
    """

    start = "<think>"
    end = "</think>"
    inline = True
    families = "GLM-4.5, GLM-4.6, GLM-4.7, GLM-5"
    sample = "<think>A greeting.</think>Hello!"
