"""Reasoning between two tags: the base of ``<think>`` and its relatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

from vllm_mlx_core.api import Chunk, ParserContext, ReasoningDelta, ReasoningEvent, ReasoningParser, TextDelta
from vllm_mlx_parsers.scan import SPACE, Markers, skip_space

_State: TypeAlias = "Callable[[Any, str, int, list[ReasoningEvent]], int]"


class TaggedReasoningParser(ReasoningParser):
    """Reads ``START reasoning END answer``; subclass it and set ``start`` and ``end``.

    - A block opens in the prompt, or at the very start of the completion (after white space). Once there is text, or
      once a block has closed, tags are only text: answers may talk about them.
    - If the prompt opened the block and the completion opens it again, the second tag is dropped.
    - An unclosed block is reasoning to its end. With thinking switched off all is answer, even literal tags.
    - A closing tag that comes first ends an empty block. When text follows it on the same line, the model may have
      closed too early and go on thinking: the text is held until either another closing tag makes it reasoning or the
      end of the completion makes it the answer.
    - White space around the reasoning is dropped, and so are the blank lines after the closing tag; the indentation of
      the answer's first line is kept.
    """

    _tags: ClassVar[Markers]
    _closing: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.special_tokens = (cls.start, cls.end)
        cls._tags = Markers(cls.start, cls.end)
        cls._closing = Markers(cls.end)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        off = context.thinking_off and not context.thinking_open
        self._state: _State = TaggedReasoningParser._answer if off else TaggedReasoningParser._opening
        self._tail = ""  # the beginning of a tag, perhaps
        self._space: list[str] = []  # held until it is known what follows
        self._trim = True  # no reasoning yet: drop space
        self._early: list[str] = []  # what follows a closing tag that came first

    def feed(self, chunk: Chunk) -> Iterable[ReasoningEvent]:
        """Take the next chunk and return the events that are now certain."""
        text = chunk.text
        if not text:
            return ()
        if self._state is TaggedReasoningParser._answer:
            return (TextDelta(text),)
        if (
            self._state is TaggedReasoningParser._thinking
            and not (self._tail or self._space or self._trim)
            and self.end[0] not in text
            and text[-1] not in SPACE
        ):
            return (ReasoningDelta(text),)
        if self._tail:
            text = self._tail + text
            self._tail = ""
        events: list[ReasoningEvent] = []
        pos = 0
        while pos < len(text):
            pos = self._state(self, text, pos, events)
        return events

    def finish(self) -> Iterable[ReasoningEvent]:
        """Return what was held back."""
        events: list[ReasoningEvent] = []
        opening = self._state is TaggedReasoningParser._opening
        if opening and self.context.thinking_open:
            self._space.clear()
            self._think(self._tail, events)
        elif self._state is TaggedReasoningParser._thinking:
            self._think(self._tail, events)
        elif opening:
            self._emit_text("".join((*self._space, self._tail)), events)
        elif self._state is TaggedReasoningParser._closed_early:
            self._emit_text("".join((*self._early, self._tail)), events)
        return events

    # -- states: each consumes something or changes the state, and returns the new position --

    def _opening(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        start = pos
        pos = skip_space(text, pos)
        if pos > start:
            self._space.append(text[start:pos])
        if pos == len(text):
            return pos
        marker = self._tags.at(text, pos)
        if marker is None:
            self._tail = text[pos:]
            return len(text)
        if marker == self.end:
            self._state = TaggedReasoningParser._closed_first
            self.thinking = False
        elif marker or self.context.thinking_open:
            self._state = TaggedReasoningParser._thinking
            self.thinking = True
        else:
            self._state = TaggedReasoningParser._answer
            self._emit_text("".join(self._space), events)
        self._space.clear()
        return pos + len(marker)

    def _thinking(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        found = self._closing.find(text, pos)
        self._think(text[pos : found.stop], events)
        if found.marker:
            self._space.clear()
            self._state = TaggedReasoningParser._closed
            self.thinking = False
            return found.next
        self._tail = text[found.stop :]
        return len(text)

    def _closed_first(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        on_same_line = text[pos] not in SPACE
        self._state = TaggedReasoningParser._closed_early if on_same_line else TaggedReasoningParser._closed
        return pos

    def _closed_early(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        found = self._closing.find(text, pos)
        self._early.append(text[pos : found.stop])
        if found.marker:
            self._think("".join(self._early), events)
            self._space.clear()
            self._state = TaggedReasoningParser._closed
            return found.next
        self._tail = text[found.stop :]
        return len(text)

    def _closed(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        start = pos
        pos = skip_space(text, pos)
        self._space.append(text[start:pos])
        if pos < len(text):
            self._emit_text("".join(self._space).rpartition("\n")[2], events)
            self._state = TaggedReasoningParser._answer
        return pos

    def _answer(self, text: str, pos: int, events: list[ReasoningEvent]) -> int:
        self._emit_text(text[pos:], events)
        return len(text)

    def _think(self, text: str, events: list[ReasoningEvent]) -> None:
        if self._trim:
            text = text.lstrip(SPACE)
            self._trim = not text
        solid = text.rstrip(SPACE)
        if solid:
            events.append(ReasoningDelta("".join((*self._space, solid))))
            self._space.clear()
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])

    def _emit_text(self, text: str, events: list[ReasoningEvent]) -> None:
        if text:
            events.append(TextDelta(text))
