"""Cohere reasoning."""

from __future__ import annotations

import re
from typing import ClassVar

from vllm_mlx_core.api import ParserContext, TextDelta
from vllm_mlx_parsers.cohere_response import RESPONSE_MARKERS, ResponseText
from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import SPACE, Markers

from .tagged import TaggedReasoningParser

_is_plain = re.compile(f"[^<]*[^<{SPACE}]").fullmatch


class CohereReasoningParser(TaggedReasoningParser):
    """``<|START_THINKING|>reasoning<|END_THINKING|><|START_RESPONSE|>answer<|END_RESPONSE|>``; all are special tokens.

    The prompt ends with an empty block if thinking is off; if it is on, some templates open the block and others leave
    that to the model. The markers around the answer (``START_TEXT`` in newer models) and the tags of citations in it
    are dropped here, because without tools no other parser reads the answer.
    """

    start = "<|START_THINKING|>"
    end = "<|END_THINKING|>"
    special_tokens = (start, end, *RESPONSE_MARKERS)
    inline = True
    families = "Command R7B, Command A Reasoning"
    sample = "<|START_THINKING|>A greeting.<|END_THINKING|><|START_RESPONSE|>Hello!<|END_RESPONSE|>"

    _response_markers: ClassVar[Markers] = Markers(*RESPONSE_MARKERS)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._response = ResponseText()

    def closed_first(self) -> Reading[None]:
        """Read on after a closing tag that stood at the very start."""
        marker = yield from self.tag(self._response_markers)
        if marker:
            yield from self.answer(marker)
        else:
            yield from super().closed_first()

    def rest(self) -> Reading[None]:
        """Read what is left: it is all answer."""
        while True:
            self.write(self.text[self.pos :])
            self.pos = len(self.text)
            if self.ended:
                super().write(self._response.finish())
                return
            if self._response.settled:
                self.pass_on(_is_plain, TextDelta)
            yield

    def write(self, text: str) -> None:
        """Pass ``text`` on as part of the answer, without markup. Mutates."""
        super().write(self._response.feed(text))
