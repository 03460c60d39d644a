"""Calls that a model writes inside its thinking: real if the thinking is never closed, a draft if an answer follows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from vllm_mlx_core.api import Chunk, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart, ToolEvent

if TYPE_CHECKING:
    from vllm_mlx_core.api import ToolParser

_PIECES = re.compile(r"\w+|\W")
"""What is fed at a time where the place of a call matters: calls begin and end at punctuation."""

log = logging.getLogger(__name__)


class CallsInThinking:
    """Reads the thinking of one completion with a tool parser of its own, and holds back what may be a call.

    ``make`` makes that parser, anew for each block of thinking; ``declares`` says whether a tool is declared. What
    ``feed``, ``close`` and ``finish`` return joins to the thinking as it was fed, but for the calls. They mutate and
    never raise: if the parser does, all is thinking.
    """

    def __init__(self, make: Callable[[], ToolParser], declares: Callable[[str], bool]) -> None:
        self._make = make
        self._declares = declares
        self._parser: ToolParser | None = None
        self._told: list[str] = []  # this block's thinking that was returned
        self._held: list[str] = []  # and that was not
        self._holds_all = False  # a call has begun
        self._failed = False

    def feed(self, text: str) -> str:
        """Take more thinking and return what is certain to be no part of a call."""
        if self._failed:
            return text
        self._held.append(text)
        if self._holds_all:
            return ""
        try:
            if self._parser is None:
                self._parser = self._make()
            events = list(self._parser.feed(Chunk(text)))
        except Exception:
            log.exception("A parser failed; calls inside this completion's thinking are not looked for.")
            self._failed = True
            return self.close()
        certain = text if len(self._held) == 1 and events == [TextDelta(text)] else self._certain(events)
        solid = certain.rstrip()  # white space in front of a call goes with it
        if solid:
            held = "".join(self._held)[len(solid) :]
            self._held = [held] if held else []
            self._told.append(solid)
        return solid

    def _certain(self, events: Iterable[ToolEvent]) -> str:
        """Return how much of what is held the parser took for text. Mutates."""
        texts: list[str] = []
        for event in events:
            if not isinstance(event, TextDelta):
                self._holds_all = True
                break
            texts.append(event.text)
        if not texts:
            return ""
        held, end = "".join(self._held), 0
        for text in texts:
            start = held.find(text, end)
            if start < 0:  # the parser changed it, so nothing can be told from it any more
                self._holds_all = True
                break
            end = start + len(text)
        return held[:end]

    def close(self) -> str:
        """Return what is held: the block is closed, so all of it was thinking."""
        if not (self._told or self._held):
            return ""
        held = "".join(self._held)
        self._parser, self._holds_all = None, False
        self._told.clear()
        self._held.clear()
        return held

    def finish(self) -> tuple[str, list[ToolEvent]]:
        """Return the rest of the thinking and the events of its calls: the completion ended, and the block is open.

        Complete calls of declared tools are real, counted from 0, and are cut out of the thinking together with the
        white space around them; everything else stays thinking, as it was written.
        """
        told, held = "".join(self._told), "".join(self._held)
        self.close()
        if self._failed or not held.strip():
            return held, []
        try:
            reading = _Reading(self._make(), self._declares, told, held)
        except Exception:
            log.exception("A parser failed; calls inside this completion's thinking are not looked for.")
            return held, []
        if not reading.calls or not reading.text.startswith(told):
            return held, []
        return reading.text[len(told) :], reading.calls


class _Reading:
    """One reading of a whole block, in pieces so small that it is known where each call stands."""

    def __init__(self, parser: ToolParser, declares: Callable[[str], bool], told: str, held: str) -> None:
        self.calls: list[ToolEvent] = []
        self._declares = declares
        self._markers = sorted(parser.special_tokens, key=len, reverse=True)
        self._raw = told + held
        self._read = 0  # how much of it the parser has read
        self._settled = 0  # how much of it is settled: kept, or part of a call
        self._kept: list[str] = []  # since the last call
        self._texts: list[str] = []  # before, between and after the calls
        self._call: ToolCallStart | None = None  # the open one
        self._arguments: list[str] = []
        self._count = 0
        self._after_call = False
        for piece in (told, *_PIECES.findall(held)) if told else _PIECES.findall(held):
            self._read += len(piece)
            self._take(parser.feed(Chunk(piece)))
        self._take(parser.finish())
        if self._call is not None or not self._after_call:
            self._kept.append(self._raw[self._settled :])
        self._texts.append("".join(self._kept))
        first, *others = self._texts
        self.text = "\n".join(filter(None, (first.rstrip(), *(text.strip() for text in others))))

    def _take(self, events: Iterable[ToolEvent]) -> None:
        for event in events:
            match event:
                case TextDelta(text):
                    self._text(text)
                case ToolCallStart():
                    self._call = event
                    self._arguments.clear()
                case ToolCallArguments(_, json):
                    self._arguments.append(json)
                case ToolCallEnd() if self._call is not None:
                    self._end(self._call)

    def _text(self, text: str) -> None:
        start = self._raw.find(text, self._settled, self._read)
        if start < 0:
            self._kept.append(text)
            self._settled = self._read
        else:
            end = start + len(text)
            self._kept.append(self._raw[start if self._after_call else self._settled : end])
            self._settled = end
        self._call, self._after_call = None, False

    def _end(self, call: ToolCallStart) -> None:
        self._call = None
        end = self._closed(self._settled, self._read)
        self._after_call = self._declares(call.name)
        if self._after_call:
            self.calls.append(ToolCallStart(self._count, call.id, call.name))
            if self._arguments:
                self.calls.append(ToolCallArguments(self._count, "".join(self._arguments)))
            self.calls.append(ToolCallEnd(self._count))
            self._count += 1
            self._texts.append("".join(self._kept))
            self._kept.clear()
        else:
            self._kept.append(self._raw[self._settled : end])
        self._settled = end

    def _closed(self, start: int, end: int) -> int:
        """Return where the call ends, closing marker included, that the parser read between ``start`` and ``end``."""
        opening = next((m for m in self._markers if self._raw.startswith(m, self._after_space(start))), None)
        after = self._after_space(end)
        for marker in self._markers:
            if marker != opening and self._raw.startswith(marker, after):
                return after + len(marker)
        return end

    def _after_space(self, position: int) -> int:
        raw = self._raw
        while position < len(raw) and raw[position].isspace():
            position += 1
        return position
