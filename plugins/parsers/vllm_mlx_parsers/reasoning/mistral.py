"""Magistral and Ministral reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class MistralReasoningParser(TaggedReasoningParser):
    """``[THINK]reasoning[/THINK]answer``; both tags are special tokens. The prompt says nothing about thinking beyond
    the system message, so the model opens the block or does not.
    """

    start = "[THINK]"
    end = "[/THINK]"
    inline = True
    families = "Magistral (from 2507), Ministral 3 Reasoning"
    sample = "[THINK]A greeting.[/THINK]Hello!"
