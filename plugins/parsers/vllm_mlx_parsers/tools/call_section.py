"""Calls between tokens of their own, several in one section: the base of DeepSeek's and Kimi's formats."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading
from vllm_mlx_parsers.scan import Markers

from .call_parser import CallParser


class SectionToolParser(CallParser):
    """Reads ``SECTION_BEGIN CALL_BEGIN call CALL_END … SECTION_END``; subclass it, set the markers, write ``call``.

    A call is complete when its arguments are: any closing marker may be missing, and so may that of the section or of
    its first call.
    """

    section_begins: ClassVar[tuple[str, ...]]
    section_ends: ClassVar[tuple[str, ...]]
    call_begin: ClassVar[str]
    call_end: ClassVar[str]

    _sections: ClassVar[Markers]
    _begins: ClassVar[Markers]
    _next: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.ends = (cls.call_end, *cls.section_ends)
        cls.starts = (*cls.section_begins, cls.call_begin, *cls.ends)
        cls.restarts = (*cls.section_begins, cls.call_begin)
        cls._sections = Markers(*cls.section_begins)
        cls._begins = Markers(cls.call_begin)
        cls._next = Markers(cls.call_begin, *cls.section_ends)
        super().__init_subclass__(**kwargs)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._unclosed = False  # calls have ended, their section has not

    @abstractmethod
    def call(self) -> Reading[str]:
        """Read one call, without its markers, and return the white space after it. Raises Malformed, Unfinished."""

    def calls(self, marker: str) -> Reading[None]:
        """Read the calls of a section.

        Ends directly behind calls are dropped, and those of a section that text interrupted; others are text.
        """
        if marker in self.ends:
            if not self._unclosed and not self._called:
                raise Malformed
            self._unclosed = marker == self.call_end
            return
        self._unclosed = False
        if marker in self.section_begins:
            yield from self.openings(self._sections)
            if (yield from self.one_of(self._next)) in self.section_ends:
                return
        while True:
            yield from self.openings(self._begins)
            space = yield from self.call()
            yield from self.take(self.call_end)
            self.record()  # what closes a complete call says nothing about what comes next
            space += yield from self.spaces()
            marker = yield from self.one_of(self._next)
            if marker != self.call_begin:
                break
        self._unclosed = not marker
        if self._unclosed:
            self.write(space)
