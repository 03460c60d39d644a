"""Harmony, the format of gpt-oss: thinking and answer are messages on channels of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar

from vllm_mlx_core.api import Chunk, ParserContext, ReasoningDelta, ReasoningEvent, ReasoningParser, TextDelta
from vllm_mlx_parsers.code_quotes import CodeQuotes
from vllm_mlx_parsers.grammar import Reading, Unfinished
from vllm_mlx_parsers.harmony_messages import (
    CALL,
    CHANNEL,
    CLOSING,
    END,
    GAP,
    MESSAGE,
    RETURN,
    START,
    STRUCTURE,
    HarmonyReader,
    Header,
)
from vllm_mlx_parsers.json_scan import PLAIN_STRING, JSONScanner
from vllm_mlx_parsers.scan import SPACE, Markers

_STOPS = (CALL, RETURN)
_TICKS = re.compile("`+")
_plain_string = PLAIN_STRING.fullmatch
_plain_text = re.compile(f"[^<`]*[^<`>{SPACE}]").fullmatch


class HarmonyReasoningParser(HarmonyReader[ReasoningEvent], ReasoningParser):
    """``<|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>answer``.

    - The channel ``analysis`` is reasoning. ``final``, ``commentary`` (what the model says before a call) and what has
      no header are the answer. Messages of one kind are joined by a blank line; headers are never shown.
    - Calls, on whatever channel, are passed on as text with a header, for the tool parser. If no tools are declared
      nobody would read them: then they are reasoning. So are messages to the model's built-in tools that the client
      did not declare, and those that the model makes up for other roles.
    - A message ends with ``<|end|>``, ``<|call|>`` or ``<|return|>``, or where another one begins. In the answer, but
      not in the reasoning, markers inside code fences and at the beginning of code spans are text, unless the ids say
      that they came as special tokens.
    """

    families = "gpt-oss"
    sample = (
        "<|channel|>analysis<|message|>Greet back.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
    )
    start = f"{CHANNEL}analysis{MESSAGE}"
    end = END
    special_tokens = STRUCTURE

    _quotable: ClassVar[Markers] = Markers(*(marker for marker in STRUCTURE if marker not in _STOPS))
    _structure: ClassVar[Markers] = Markers(*STRUCTURE)
    _structure_and_ticks: ClassVar[Markers] = Markers(*STRUCTURE, "`")

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._event: type[TextDelta | ReasoningDelta] = TextDelta  # what the message being read becomes
        self._said: set[type[TextDelta | ReasoningDelta]] = set()
        self._gap = False  # one is due before more is said
        self._is_token = False  # the newest chunk is a special token

    def feed(self, chunk: Chunk) -> Iterable[ReasoningEvent]:
        """Take the next chunk and return the events that are now certain."""
        self._is_token = chunk.text in STRUCTURE and self._came_as_token(chunk)
        return super().feed(chunk)

    def _came_as_token(self, chunk: Chunk) -> bool:
        tokenizer = self.context.tokenizer
        if tokenizer is None or not chunk.token_ids:
            return False
        return tokenizer.special_token(chunk.token_ids[-1]) == chunk.text

    def grammar(self) -> Reading[None]:
        """Read one message after another."""
        with suppress(Unfinished):
            if self.context.thinking_open:
                header = Header(channel="analysis")
            else:
                text, marker = yield from self.lead(first=True)
                header = (yield from self.header(marker, text)) if marker else Header(body=text)
            while marker := (yield from self._message(header)):
                header = yield from (self.next_header() if marker in CLOSING else self.header(marker))

    def _message(self, header: Header) -> Reading[str]:
        """Read a body, and the marker that ends it, which is returned; "" at the end of the stream."""
        is_call = bool(self.context.tools and header.function(self.context))
        self.thinking = header.is_thought and not is_call
        self._event = ReasoningDelta if self.thinking else TextDelta
        self._gap = self._event in self._said and not is_call
        if is_call:
            self._say(f"{END}{START}assistant to={header.recipient}{CHANNEL}commentary{MESSAGE}")
        self._say(header.body)
        if header.is_addressed:
            yield from self._json()
        marker = yield from (self._until(self._structure) if header.is_thought else self._answer())
        if is_call and marker:
            self._say(marker if marker in CLOSING else END)
        self.thinking = self.thinking and not marker
        return marker

    def _answer(self) -> Reading[str]:
        code = CodeQuotes()
        while True:
            marker = yield from self._until(self._structure_and_ticks, code)
            if marker == "`":
                ticks = 1 + len((yield from self.run(_TICKS)))
                opens_span = code.ticks(ticks)
                self._say("`" * ticks)
                code.read("`")
                if not opens_span:
                    continue
                marker = ""
                with suppress(Unfinished):
                    marker = yield from self.one_of(self._quotable)
                if marker and self._is_token:
                    return marker
                self._say(marker)
            elif marker and code.fence and marker not in _STOPS and not self._is_token:
                self._say(marker)
            else:
                return marker

    def _until(self, markers: Markers, code: CodeQuotes | None = None) -> Reading[str]:
        """Say everything before the first of ``markers``, read it and return it; "" at the end of the stream."""
        while True:
            found = markers.find(self.text, self.pos, ended=self.ended)
            if found.stop > self.pos:
                text = self.text[self.pos : found.stop]
                self._say(text)
                if code is not None:
                    code.read(text)
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            if self._event in self._said and not self._gap and (code is None or code.settled):
                self.pass_on(_plain_text, self._event)
            yield

    def _json(self) -> Reading[None]:
        """Read a body as far as it is JSON, in which markers are data."""
        self._say((yield from self.spaces()))
        if (yield from self.peek()) not in ("{", '"'):
            return
        scanner = JSONScanner()
        while True:
            start, self.pos = self.pos, scanner.feed(self.text, self.pos)
            scanner.take()
            self._say(self.text[start : self.pos])
            if scanner.done or scanner.broken or self.ended:
                return
            if scanner.in_string and not self._gap:
                self.pass_on(_plain_string, self._event)
            yield

    def _say(self, text: str) -> None:
        if text:
            self.events.append(self._event(GAP + text if self._gap else text))
            self._said.add(self._event)
            self._gap = False
