"""Nemotron reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class NemotronReasoningParser(TaggedReasoningParser):
    r"""``<think>\nreasoning\n</think>\n\nanswer``.

    Nano v2 and Nemotron 3 say in the prompt whether thinking is open (``<think>\n``) or off (``<think></think>``). The
    Llama Nemotron models go by their system prompt and open the block themselves, so that without tags all is answer.
    """

    start = "<think>"
    end = "</think>"
    families = "Nemotron 3, Nemotron Nano v2, Llama Nemotron"
    sample = "<think>\nA greeting.\n</think>\n\nHello!"
