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
"""What the parser is fed at a time, so that it is known where each call stands: they begin and end at punctuation."""
_is_one_piece = re.compile(r"[ \n]?\w*").fullmatch
_ENDING = 16
"""How many characters of a text tell where it ends."""

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
        self._block: _Block | None = None
        self._failed = False

    def feed(self, text: str) -> str:
        """Take more thinking and return what is certain to be no part of a call."""
        if self._failed:
            return text
        try:
            if self._block is None:
                self._block = _Block(self._make(), self._declares)
            return self._block.feed(text)
        except Exception:
            self._give_up()
            return self.close() or text

    def close(self) -> str:
        """Return what is held: the block is closed, so all of it was thinking."""
        block, self._block = self._block, None
        return block.held if block is not None else ""

    def finish(self) -> tuple[str, list[ToolEvent]]:
        """Return the rest of the thinking and the events of its calls: the completion ended, and the block is open.

        Complete calls of declared tools are real, counted from 0, and are cut out of the thinking together with the
        white space around them; everything else stays thinking, as it was written.
        """
        block, held = self._block, self.close()
        if block is None or not held.strip():
            return held, []
        try:
            rest = block.finish()
        except Exception:
            self._give_up()
            return held, []
        return (rest, block.calls) if block.calls else (held, [])

    def _give_up(self) -> None:
        self._failed = True
        log.exception("A parser failed; calls inside this completion's thinking are not looked for.")


class _Block:
    """One block of thinking, of which it is known where each call stands."""

    def __init__(self, parser: ToolParser, declares: Callable[[str], bool]) -> None:
        self.calls: list[ToolEvent] = []
        self._parser = parser
        self._declares = declares
        self._markers = sorted(parser.special_tokens, key=len, reverse=True)
        self._held: list[str] = []  # what was not returned
        self._released: list[str] = []  # to be returned
        self._has_returned = False
        self._changed = False  # what the parser passes on is not what it was fed
        self._unsettled: list[str] = []  # what the parser has read and neither passed on nor made a call of
        self._kept: list[str] = []  # since the last real call
        self._texts: list[str] = []  # before and between the real calls
        self._call: ToolCallStart | None = None  # the open one
        self._arguments: list[str] = []
        self._ended: tuple[int, bool] | None = None  # length of a call that has ended, and whether it is real
        self._after_call = False  # nothing was kept since a real one
        self._count = 0

    @property
    def held(self) -> str:
        """All that was fed and not returned."""
        return "".join(self._held)

    @property
    def _holds_all(self) -> bool:
        """Whether nothing may be returned: a call is open, or what comes after a real one would overtake it."""
        return self._changed or bool(self.calls) or self._call is not None or self._ended is not None

    def feed(self, text: str) -> str:
        """Take more and return what is certain to be no part of a call. Raises what the parser raises."""
        self._held.append(text)
        for piece in (text,) if _is_one_piece(text) else _PIECES.findall(text):
            self._unsettled.append(piece)
            self._take(self._parser.feed(Chunk(piece)))
        self._release()
        if not self._released:
            return ""
        released = "".join(self._released)
        self._released.clear()
        self._has_returned = True
        held = self.held[len(released) :]
        self._held = [held] if held else []
        return released

    def _release(self) -> None:
        """Pass on what was kept, unless all is held; white space in front of a call goes with it. Mutates."""
        if self._holds_all:
            return
        kept = "".join(self._kept)
        if solid := kept.rstrip():
            self._released.append(solid)
            self._kept = [kept[len(solid) :]]

    def finish(self) -> str:
        """Return the rest without the real calls, which are in ``calls`` then. Raises what the parser raises."""
        self._take(self._parser.finish())
        self._settle_call()
        if self._call is not None or not self._after_call:
            self._kept += self._unsettled
        first, *others = (*self._texts, "".join(self._kept))
        first = first.rstrip()
        text = "".join((first, *(f"\n{each.strip()}" for each in others if each.strip())))
        return text if first or self._has_returned else text[1:]

    def _take(self, events: Iterable[ToolEvent]) -> None:
        for event in events:
            match event:
                case TextDelta(text):
                    self._settle_call()
                    self._text(text)
                case ToolCallStart():
                    self._settle_call()
                    self._release()
                    self._call = event
                    self._arguments.clear()
                case ToolCallArguments(_, json):
                    self._arguments.append(json)
                case ToolCallEnd() if self._call is not None:
                    self._end(self._call)

    def _text(self, text: str) -> None:
        solid = text.lstrip() or text  # the white space in front may come from before a call
        rest = "".join(self._unsettled)
        start = rest.rfind(solid) if self._after_call else rest.find(solid)
        if start >= 0:
            end = start + len(solid)
            follows_call = self._after_call and self._call is None  # whose closing markers are in front
            self._kept.append(rest[start if follows_call else 0 : end])
        else:  # the parser changed it, or its beginning was taken for the end of a call
            self._changed = True
            self._kept.append(text)
            ending = solid[-_ENDING:]
            end = max(0, rest.rfind(ending)) + len(ending)
        self._unsettled = [rest[end:]]
        self._call, self._after_call = None, False

    def _end(self, call: ToolCallStart) -> None:
        self._call = None
        is_real = self._declares(call.name)
        self._ended = (sum(map(len, self._unsettled)), is_real)
        if is_real:
            self.calls.append(ToolCallStart(self._count, call.id, call.name))
            if self._arguments:
                self.calls.append(ToolCallArguments(self._count, "".join(self._arguments)))
            self.calls.append(ToolCallEnd(self._count))
            self._count += 1

    def _settle_call(self) -> None:
        """Cut out the call that has ended, or keep it: now that more was read, its closing marker is there too."""
        if self._ended is None:
            return
        length, self._after_call = self._ended
        self._ended = None
        rest = "".join(self._unsettled)
        end = self._closed(rest, length)
        if self._after_call:
            self._texts.append("".join(self._kept))
            self._kept.clear()
        else:
            self._kept.append(rest[:end])
        self._unsettled = [rest[end:]]

    def _closed(self, rest: str, length: int) -> int:
        """Return where the call ends, closing marker included, that is the first ``length`` characters of ``rest``."""
        begin, after = _after_space(rest, 0), _after_space(rest, length)
        opening = next((marker for marker in self._markers if rest.startswith(marker, begin)), None)
        for marker in self._markers:
            if marker != opening and rest.startswith(marker, after):
                return after + len(marker)
        return length


def _after_space(text: str, place: int) -> int:
    """Return the first place from this one on where no white space stands."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place
