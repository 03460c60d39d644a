"""Harmony calls, written by gpt-oss: messages to a function."""

from __future__ import annotations

from typing import ClassVar

from vllm_mlx_core.api import ParserContext, ToolEvent
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.harmony_messages import (
    CALL,
    CLOSING,
    END,
    GAP,
    OPENING,
    RETURN,
    START,
    STRUCTURE,
    HarmonyReader,
)
from vllm_mlx_parsers.scan import Markers

from .call_parser import CallParser
from .code_call import code_call
from .named_call import named_call

_CALL_OPENING = f"{START}assistant to="


class HarmonyToolParser(HarmonyReader[ToolEvent], CallParser):
    """``<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>``.

    - The recipient may stand anywhere in the header, on any channel; ``functions.`` before the name may be missing.
      The built-in tools ``python`` and ``browser.*`` are called only if the client declared them. Code for ``python``
      becomes its argument ``code``.
    - Headers are never shown. All bodies that are no calls are content, joined by blank lines: it is the reasoning
      parser that takes the thinking out before. What it leaves, with or without headers, is read in the same way.
    - The body of a broken call is content, without its header.
    """

    families = "gpt-oss"
    sample = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
    special_tokens = STRUCTURE
    stop_tokens = (CALL, RETURN)
    starts = (*OPENING, END)
    surroundings = "kept, without headers; messages are joined by a blank line"

    _structure: ClassVar[Markers] = Markers(*STRUCTURE)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._first: str | None = None  # what stands before the first header's first marker

    def content(self) -> Reading[str]:
        """Pass content on up to a marker; see ``CallParser``. The completion may begin in the middle of a header."""
        if self._first is None:
            self._first = ""
            try:
                self._first, marker = yield from self.lead(first=True)
            except Unfinished:
                return ""
            if marker:
                return marker
            self.write(self._first)
            self._first = ""
        return (yield from super().content())

    def _until_marker(self) -> Reading[str]:
        marker = yield from super()._until_marker()
        if marker == END and self._code.fence and (yield from self._follows(_CALL_OPENING)):
            self._code.leave()  # no code fence outlives its message
        return marker

    def _follows(self, text: str) -> Reading[bool]:
        """Return whether ``text`` comes next, without reading it."""
        while not self.ended and len(self.text) - self.pos < len(text) and text.startswith(self.text[self.pos :]):
            yield
        return self.text.startswith(text, self.pos)

    def calls(self, marker: str) -> Reading[None]:
        """Read messages as long as they are calls, and the header of one that is none."""
        while marker:
            if marker in CLOSING:
                header = yield from self.next_header()
            else:
                header = yield from self.header(marker, self._first or "")
            self._first = ""
            self.record(header.body)  # a header is never text
            name = "" if header.body else header.function(self.context)
            if not name:
                yield from self._speak(header.body)
                return
            self._separate()
            try:
                yield from self._call(name)
            except Unfinished:
                self._break_if_closed()
                raise
            marker = yield from self.one_of(self._structure)

    def _call(self, name: str) -> Reading[None]:
        yield from self.spaces()
        if name == "python" and (yield from self.peek()) not in ("{", '"', "<"):
            yield from code_call(self, name, self._structure)
        else:
            yield from named_call(self, name, self._structure)

    def _speak(self, body: str) -> Reading[None]:
        """Begin a message that is content, unless its body is empty."""
        if not body:
            marker = yield from self.ahead(self._structure)
            if marker or not (yield from self.peek()):
                return
        self._separate()
        self.write(body)

    def _separate(self) -> None:
        """Put a blank line between what was written and what will be."""
        if self._wrote:
            (self._after if self._called else self._space).append(GAP)

    def _break_if_closed(self) -> None:
        """Raise Malformed if what was read ends with the end of a message, which a string has swallowed."""
        raw = self.recorded()
        closing = next((marker for marker in CLOSING if raw.endswith(marker)), "")
        self.record(raw.removesuffix(closing))
        if closing:
            raise Malformed
