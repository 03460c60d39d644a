"""Gemma 4 reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser


class Gemma4ReasoningParser(TaggedReasoningParser):
    r"""``<|channel>thought\nreasoning<channel|>answer``.

    The model opens the channel itself; the prompt ends with an empty one if thinking is off. What stands in a channel
    of another name is reasoning too, with that name in it: the template cuts all channels out of earlier turns.
    """

    start = "<|channel>thought"
    end = "<channel|>"
    other_tags = {"<|channel>": ("<channel|>",)}  # noqa: RUF012 - a constant
    special_tokens = ("<|channel>", "<channel|>")
    inline = True
    families = "Gemma 4"
    sample = "<|channel>thought\nA greeting.<channel|>Hello!"
