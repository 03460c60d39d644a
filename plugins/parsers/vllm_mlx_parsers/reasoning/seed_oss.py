"""Seed-OSS reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class SeedOSSReasoningParser(TaggedReasoningParser):
    """``<seed:think>reasoning</seed:think>answer``.

    The model opens the block itself; with a thinking budget of 0 the prompt ends with a closed one. With another budget
    the model notes now and then, in ``<seed:cot_budget_reflect>`` tags, how much of it is left: these notes stay part
    of the reasoning, without their tags.
    """

    start = "<seed:think>"
    end = "</seed:think>"
    notes = ("<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>")
    families = "Seed-OSS"
    sample = "<seed:think>\nA greeting.\n</seed:think>\nHello!"
