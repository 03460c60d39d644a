"""Calls written as JSON objects between two tags: the base of Hermes and its relatives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, ToolEvent, ToolParser
from vllm_mlx_parsers.scan import SPACE, Markers

from .json_call import JSONCall

_LOOSE_END = re.compile(r"[ \t\r\n}\]]*")

_State: TypeAlias = "Callable[[Any, str, int, list[ToolEvent]], int]"


class TaggedJSONToolParser(ToolParser):
    """Reads ``START {"name": …, "arguments": {…}} END``, repeated; subclass it and set ``start`` and ``end``.

    - A call is complete when its object closes: the closing tag may be missing, more objects may stand in one block,
      and surplus closing brackets are dropped.
    - White space directly before and after a block is dropped; all other text is kept as it is.
    - A block that is not a call (no JSON, broken JSON, no name) is text, tags included. If its ``ToolCallStart`` was
      already out, that call never gets its ``ToolCallEnd``.
    - A block that the stream cuts off is text if its name was not yet known, else a call without ``ToolCallEnd``.
    - Every proper block is a call, whether or not the client declared its name: a client can tell the model that there
      is no such tool, but can do nothing with raw markup in an answer.
    """

    start: ClassVar[str]
    end: ClassVar[str]
    _opening: ClassVar[Markers]
    _closing: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.special_tokens = (cls.start, cls.end)
        cls._opening = Markers(cls.start)
        cls._closing = Markers(cls.end)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._state: _State = TaggedJSONToolParser._text
        self._tail = ""  # the beginning of a tag, perhaps
        self._space: list[str] = []  # dropped if a call follows
        self._trim = False  # a call has just ended: drop space
        self._call = JSONCall(0)
        self._calls = 0
        self._raw: list[str] = []  # the current block as it was written

    def feed(self, chunk: Chunk) -> Iterable[ToolEvent]:
        """Take the next chunk and return the events that are now certain."""
        text = chunk.text
        if not text:
            return ()
        if (
            self._state is TaggedJSONToolParser._text
            and not (self._tail or self._space or self._trim)
            and self.start[0] not in text
            and text[-1] not in SPACE
        ):
            return (TextDelta(text),)
        if self._tail:
            text = self._tail + text
            self._tail = ""
        events: list[ToolEvent] = []
        pos = 0
        while pos < len(text):
            pos = self._state(self, text, pos, events)
        return events

    def finish(self) -> Iterable[ToolEvent]:
        """Return what was held back as text, unless it belongs to a call."""
        events: list[ToolEvent] = []
        if self._state is TaggedJSONToolParser._after:
            return events
        if self._state is TaggedJSONToolParser._body:
            # A closing tag that was swallowed by a string shows that the JSON is broken, not merely cut off.
            if self._call.started and self.end not in "".join(self._raw):
                return events
            self._write("".join(self._raw), events)
        else:
            self._write(self._tail, events)
        if self._space:
            events.append(TextDelta("".join(self._space)))
        return events

    # -- states: each consumes something or changes the state, and returns the new position --

    def _text(self, text: str, pos: int, events: list[ToolEvent]) -> int:
        found = self._opening.find(text, pos)
        self._write(text[pos : found.stop], events)
        if found.marker:
            self._begin(found.marker)
            return found.next
        self._tail = text[found.stop :]
        return len(text)

    def _body(self, text: str, pos: int, events: list[ToolEvent]) -> int:
        call = self._call
        stop = call.feed(text, pos)
        self._raw.append(text[pos:stop])
        events += call.take()
        if call.broken:
            self._calls += call.started
            self._state = TaggedJSONToolParser._text
            self._write("".join(self._raw), events)
        elif call.done:
            self._calls += 1
            self._space.clear()
            self._trim = True
            self._state = TaggedJSONToolParser._after
        return stop

    def _after(self, text: str, pos: int, events: list[ToolEvent]) -> int:
        match = _LOOSE_END.match(text, pos)
        pos = match.end() if match else pos
        if pos == len(text):
            return pos
        if text[pos] == "{":
            self._begin("")
            return pos
        marker = self._closing.at(text, pos)
        if marker is None:
            self._tail = text[pos:]
            return len(text)
        self._state = TaggedJSONToolParser._text
        return pos + len(marker)

    def _begin(self, opening: str) -> None:
        self._call = JSONCall(self._calls)
        self._raw = [opening]
        self._state = TaggedJSONToolParser._body

    def _write(self, text: str, events: list[ToolEvent]) -> None:
        if self._trim:
            text = text.lstrip(SPACE)
            self._trim = not text
        solid = text.rstrip(SPACE)
        if solid:
            events.append(TextDelta("".join((*self._space, solid))))
            self._space.clear()
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])
