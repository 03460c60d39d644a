"""Reasoning between two tags: the base of ``<think>`` and its relatives."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from vllm_mlx_core.api import ParserContext, ReasoningDelta, ReasoningEvent, ReasoningParser, TextDelta
from vllm_mlx_parsers.grammar import GrammarParser, Reading, Unfinished
from vllm_mlx_parsers.scan import SPACE, Markers

_QUOTES = "`'\""
_TAGS = frozenset({"start", "end", "other_tags", "notes"})


class TaggedReasoningParser(GrammarParser[ReasoningEvent], ReasoningParser):
    """Reads ``START reasoning END answer``; subclass it and set ``start`` and ``end``.

    - A block opens in the prompt, or at the very start of the completion (after white space). Once there is text, or
      once a block has closed, tags are only text: answers may talk about them.
    - If the prompt opened the block and the completion opens it again, the second tag is dropped.
    - An unclosed block is reasoning to its end. With thinking switched off all is answer, even literal tags.
    - A closing tag between two equal quotes or backticks is only text: the reasoning talks about it.
    - A closing tag that comes first ends an empty block. When text follows it on the same line, the model may have
      closed too early and go on thinking: the text is held until either another closing tag makes it reasoning or the
      end of the completion makes it the answer. Where that is how the model writes its answers (``inline``), the text
      is held for one line only.
    - White space around the reasoning is dropped, and so are the blank lines after the closing tag; the indentation of
      the answer's first line is kept.
    """

    assumed_open: ClassVar[bool] = False
    """Whether thinking is open where the prompt neither opened it nor switched it off."""
    inline: ClassVar[bool] = False
    """Whether answers stand on the line of the closing tag."""
    other_tags: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """More opening tags, each with the tags that close it."""
    notes: ClassVar[tuple[str, ...]] = ()
    """Tags inside the reasoning that are dropped; what stands between them stays."""

    _openings: ClassVar[Mapping[str, TagPair]]
    _unnamed: ClassVar[TagPair]
    """A block of which it is not known what opened it."""
    _tags: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.start:
            return  # a base of other parsers
        pairs = {cls.start: (cls.end,), **cls.other_tags}
        cls._openings = {tag: TagPair(ends, cls.notes) for tag, ends in pairs.items()}
        ends = tuple(end for ends in pairs.values() for end in ends)
        tags = (*pairs, *ends)
        cls._tags = Markers(*tags)
        cls._unnamed = TagPair(ends, cls.notes)
        if "special_tokens" not in vars(cls) and not _TAGS.isdisjoint(vars(cls)):
            cls.special_tokens = tuple(dict.fromkeys((*tags, *cls.notes)))

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._off = context.thinking_off and not context.thinking_open
        self._last = " "  # character of the reasoning
        self._space: list[str] = []  # held until it is known what follows
        self._trim = True  # no reasoning yet: drop space

    @classmethod
    def thinking_in_prompt(cls, prompt: str) -> tuple[bool, bool]:
        """Return whether a rendered prompt leaves thinking open, and whether it switches it off. Pure.

        Open if it ends with an opening tag, off if it ends with a closing one: that of an empty block, that of a
        block which the client has written, or a lone one, by which some templates switch thinking off.
        """
        text = prompt.rstrip()
        return text.endswith(tuple(cls._openings)), text.endswith(cls._unnamed.ends.markers)

    # -- the grammar ----------------------------------------------------------------------------------------------

    def grammar(self) -> Reading[None]:
        """Read the whole completion."""
        space = yield from self.spaces()
        marker = ""
        if not self._off:
            marker = yield from self.tag(self._tags)
        opened = self.thinking or (self.assumed_open and not self._off and self.pos < len(self.text))
        if marker in self._openings or (opened and not marker):
            self.thinking = True
            yield from self._thoughts(self._openings.get(marker, self._unnamed))
            return
        self._end_thinking()
        if marker:
            yield from self.closed_first()
        else:
            yield from self.answer(space)

    def _thoughts(self, block: TagPair) -> Reading[None]:
        while marker := (yield from self.passing(block, self._think, ReasoningDelta)):
            if marker in self.notes:
                continue
            if not (yield from self._is_quoted()):
                self._end_thinking()
                yield from self._closed()
                return
            self._think(marker)

    def _is_quoted(self) -> Reading[bool]:
        last = self._last
        return last in _QUOTES and (yield from self.peek()) == last

    def _end_thinking(self) -> None:
        self.thinking = False
        self._space.clear()
        self._last, self._trim = " ", False

    def _closed(self) -> Reading[None]:
        space = yield from self.spaces()
        yield from self.answer(self.indentation(space))

    def closed_first(self) -> Reading[None]:
        """Read on after a closing tag that stood at the very start."""
        following = yield from self.peek()
        if not following or following in SPACE:
            yield from self._closed()
            return
        held: list[str] = []
        ends = self._unnamed.ends
        marker = yield from self.until(self._unnamed.ends_or_line if self.inline else ends, held.append)
        if marker in ends.markers:
            self._think("".join(held))
            self._end_thinking()
            yield from self._closed()
        else:
            self.text, self.pos = "".join((*held, marker, self.text[self.pos :])), 0
            yield from self.answer("")

    # -- the answer: formats that have tags around it override this -----------------------------------------------

    def answer(self, space: str) -> Reading[None]:
        """Read the answer, in front of which ``space`` stood."""
        self.write(space)
        yield from self.rest()

    def rest(self) -> Reading[None]:
        """Read what is left: it is all answer."""
        while True:
            self.write(self.text[self.pos :])
            self.pos = len(self.text)
            if self.ended:
                return
            self.pass_on(bool, TextDelta)
            yield

    def indentation(self, space: str) -> str:
        """Return what is kept of the white space that was read between a tag and the answer."""
        return space.rpartition("\n")[2] if self.pos < len(self.text) else ""

    def passing(
        self, tags: TagPair, sink: Callable[[str], None], wrap: Callable[[str], ReasoningEvent]
    ) -> Reading[str]:
        """As ``until``, with a ``sink`` that makes of most pieces just what ``wrap`` does."""
        while True:
            found = tags.markers.find(self.text, self.pos, ended=self.ended)
            sink(self.text[self.pos : found.stop])
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            if not (self._space or self._trim or self._last in _QUOTES):
                self.pass_on(tags.is_plain, wrap)
            yield

    def tag(self, tags: Markers) -> Reading[str]:
        """Read the one of ``tags`` that stands here and return it; "" if none does, and if the stream ends in one."""
        try:
            return (yield from self.one_of(tags))
        except Unfinished:
            return ""

    # -- what comes out -------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Pass ``text`` on as part of the answer. Mutates."""
        if text:
            self.events.append(TextDelta(text))

    def _think(self, text: str) -> None:
        if not text:
            return
        self._last = text[-1]
        if self._trim:
            text = text.lstrip(SPACE)
            self._trim = not text
        self.hold_space(text, ReasoningDelta)

    def hold_space(self, text: str, wrap: Callable[[str], ReasoningEvent]) -> None:
        """Pass ``text`` on; white space at its end is held until more comes. Mutates."""
        solid = text.rstrip(SPACE)
        if solid:
            self.events.append(wrap("".join((*self._space, solid))))
            self._space.clear()
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])


class TagPair:
    """What ends a block that began with one kind of tag."""

    def __init__(self, ends: tuple[str, ...], within: tuple[str, ...] = ()) -> None:
        self.ends = Markers(*ends)
        self.ends_or_line = Markers(*ends, "\n")
        self.markers = Markers(*ends, *within)
        """All to look for: the ends, and tags within the block."""
        first = re.escape(self.markers.first)
        self.is_plain = re.compile(f"[^{first}]*[^{first}{SPACE}{_QUOTES}]").fullmatch
        """Whether a piece of the block can be passed on as it is."""
