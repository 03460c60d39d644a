"""Kimi K3 reasoning."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_mlx_core.api import ReasoningEvent, TextDelta
from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .tagged import TaggedReasoningParser, TagPair

_BRACKETS = ("<|open|>", "<|close|>")
_RESPONSE = "<|open|>response<|sep|>"
_OPENS = Markers(_RESPONSE)
_AROUND = TagPair((_RESPONSE, "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"))


class KimiK3ReasoningParser(TaggedReasoningParser):
    """``<|open|>think<|sep|>reasoning<|close|>think<|sep|>`` and the answer in a segment called ``response``.

    The prompt opens the segment ``think`` if thinking is on, ``response`` if it is off. What opens and closes the
    response and the message is dropped here, because without tools no other parser reads the answer. So is a tag that
    the end of the completion cuts off behind the special token that it begins with.
    """

    start = "<|open|>think<|sep|>"
    end = "<|close|>think<|sep|>"
    special_tokens = (*_BRACKETS, "<|sep|>", "<|end_of_msg|>")
    inline = True
    families = "Kimi K3"
    sample = (
        "<|open|>think<|sep|>A greeting.<|close|>think<|sep|>"
        "<|open|>response<|sep|>Hello!<|close|>response<|sep|><|close|>message<|sep|>"
    )

    @classmethod
    def thinking_in_prompt(cls, prompt: str) -> tuple[bool, bool]:
        """Return whether a rendered prompt leaves thinking open, and whether it switches it off. Pure."""
        is_open, is_off = super().thinking_in_prompt(prompt)
        return is_open, is_off or prompt.rstrip().endswith(_RESPONSE)

    def finish(self) -> Iterable[ReasoningEvent]:
        """Return the events for whatever was held back."""
        if self.text.startswith(_BRACKETS, self.pos):
            self.text = self.text[: self.pos]
        return super().finish()

    def closed_first(self) -> Reading[None]:
        """Read on after a closing tag that stood at the very start."""
        if (yield from self.tag(_OPENS)):
            yield from self.rest()
        else:
            yield from super().closed_first()

    def rest(self) -> Reading[None]:
        """Read what is left: it is all answer."""
        while (yield from self.passing(_AROUND, self.write, TextDelta)):
            pass
