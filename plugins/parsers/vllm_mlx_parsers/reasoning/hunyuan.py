"""Hunyuan reasoning."""

from __future__ import annotations

from .wrapped import WrappedAnswerParser


class HunyuanReasoningParser(WrappedAnswerParser):
    r"""``<think>\nreasoning\n</think>\n<answer>\nanswer\n</answer>``.

    Thinking is off where the prompt ends with an empty block. A user's ``/no_think`` makes the model write an empty
    block itself. Hy3 has another name in its tags, ``<think:opensource>``, and none around the answer. Without tags
    all is answer.
    """

    start = "<think>"
    end = "</think>"
    other_tags = {"<think:opensource>": ("</think:opensource>",)}  # noqa: RUF012 - a constant
    answer_start = "<answer>"
    answer_end = "</answer>"
    families = "Hunyuan-A13B and the dense Hunyuan models, Hy3"
    sample = "<think>\nA greeting.\n</think>\n<answer>\nHello!\n</answer>"
