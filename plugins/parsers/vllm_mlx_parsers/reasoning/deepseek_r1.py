"""DeepSeek R1 reasoning."""

from __future__ import annotations

from .tagged import TaggedReasoningParser

_RESULTS = ("<｜tool▁outputs▁end｜>", "<｜tool▁output▁end｜>")


class DeepSeekR1ReasoningParser(TaggedReasoningParser):
    r"""``<think>\nreasoning\n</think>\n\nanswer``, often without the opening tag.

    The model always thinks first, so text before a ``</think>`` is reasoning even if nothing opened the block. Thinking
    is off where the prompt ends with a closing tag, and where it ends with the results of tools: there the published
    template lets the model go on with its answer.
    """

    start = "<think>"
    end = "</think>"
    assumed_open = True
    families = "DeepSeek R1, R1-0528 and the distilled models, Phi-4-mini-reasoning"
    sample = "A greeting.\n</think>\n\nHello!"

    @classmethod
    def thinking_in_prompt(cls, prompt: str) -> tuple[bool, bool]:
        """Return whether a rendered prompt leaves thinking open, and whether it switches it off. Pure."""
        is_open, is_off = super().thinking_in_prompt(prompt)
        return is_open, is_off or prompt.rstrip().endswith(_RESULTS)
