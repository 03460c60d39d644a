"""Reasoning in tags, and an answer that has tags of its own around it."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm_mlx_core.api import TextDelta
from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .tagged import TaggedReasoningParser, TagPair


class WrappedAnswerParser(TaggedReasoningParser):
    """Reads ``START reasoning END <answer>answer</answer>``; set ``answer_start`` and ``answer_end`` too.

    - The tags of the answer may be missing. The opening one counts where the answer begins, whether or not there was
      thinking, and is dropped with the blank lines after it.
    - The closing one counts if the opening one did, and if it ends the completion or begins a line (calls may follow);
      it is dropped with the white space before it. Pairs inside the answer are text.
    """

    answer_start: ClassVar[str]
    answer_end: ClassVar[str]

    _answer_opens: ClassVar[Markers]
    _answer_tags: ClassVar[TagPair]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.special_tokens = tuple(dict.fromkeys((*cls.special_tokens, cls.answer_start, cls.answer_end)))
        cls._answer_opens = Markers(cls.answer_start)
        cls._answer_tags = TagPair((cls.answer_end,), (cls.answer_start,))

    def closed_first(self) -> Reading[None]:
        """Read on after a closing tag that stood at the very start."""
        if (yield from self.tag(self._answer_opens)):
            yield from self._wrapped()
        else:
            yield from super().closed_first()

    def answer(self, space: str) -> Reading[None]:
        """Read the answer, in front of which ``space`` stood."""
        if (yield from self.tag(self._answer_opens)):
            yield from self._wrapped()
        else:
            yield from super().answer(space)

    def _wrapped(self) -> Reading[None]:
        space = yield from self.spaces()
        self.write(self.indentation(space))
        depth = 1
        while marker := (yield from self.passing(self._answer_tags, self._write, TextDelta)):
            if marker == self.answer_start:
                depth += 1
            elif depth > 1:
                depth -= 1
            else:
                space = yield from self.spaces()
                if self.pos == len(self.text):
                    return
                before = "".join(self._space)
                if "\n" in before:
                    self.write(space or before)
                    yield from self.rest()
                    return
                marker += space
            self._write(marker)
        self.write("".join(self._space))

    def _write(self, text: str) -> None:
        self.hold_space(text, TextDelta)
