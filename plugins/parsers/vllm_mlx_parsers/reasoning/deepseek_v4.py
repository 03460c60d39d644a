"""Reasoning of the DeepSeek models that think on demand."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class DeepSeekV4ReasoningParser(TaggedReasoningParser):
    """``<think>reasoning</think>answer``.

    The prompt ends with ``<think>`` if thinking is on; if it is off, with ``</think>`` alone or behind ``<think>``.
    Where it says neither, as after a tool's result, the model answers: without tags all is answer.
    """

    start = "<think>"
    end = "</think>"
    inline = True
    families = "DeepSeek V3.1, DeepSeek V3.2, DeepSeek V4"
    sample = "<think>A greeting.</think>Hello!"
