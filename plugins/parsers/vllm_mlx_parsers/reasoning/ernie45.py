"""ERNIE 4.5 reasoning."""

from __future__ import annotations

from .wrapped import WrappedAnswerParser


class Ernie45ReasoningParser(WrappedAnswerParser):
    r"""``<think>\nreasoning\n</think>\n\n<response>\nanswer\n</response>``. The thinking models' prompt opens the
    block. Without tags all is answer.
    """

    start = "<think>"
    end = "</think>"
    answer_start = "<response>"
    answer_end = "</response>"
    families = "ERNIE 4.5 Thinking"
    sample = "<think>\nA greeting.\n</think>\n\n<response>\nHello!\n</response>\n"
