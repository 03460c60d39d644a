"""Laguna reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class PoolsideV1ReasoningParser(TaggedReasoningParser):
    """``<think>reasoning</think>answer``.

    The prompt ends with ``<think>`` if thinking is on and with a lone ``</think>`` if it is off. Where it says neither,
    thinking counts as open: the model has learned to go on in a block that it does not open itself.
    """

    start = "<think>"
    end = "</think>"
    assumed_open = True
    inline = True
    families = "Poolside Laguna"
    sample = "A greeting.</think>Hello!"
