"""Calls whose parameters come one by one, as plain text between tags: the base of the XML-like formats."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import ClassVar

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Reading, Unfinished
from vllm_mlx_parsers.scan import Markers
from vllm_mlx_parsers.schema import Schema, json_text

from .call_parser import CallParser

_NOTHING: Schema = Schema({})


class ParameterParser(CallParser):
    """A parser of calls with tagged parameters. Its ``calls`` uses, in this order::

        self.start_call(name)
        yield from self.parameter(key, ends, then)    # for each
        self.end_parameters()

    Values get their types from the declared tool's schema. Text streams while it is generated; a value that may be
    something else waits for its end, the others of the call do not.
    """

    newline: ClassVar[bool] = False
    """Whether one newline on either side of a value belongs to the markup."""

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self.schema = _NOTHING
        """The schema of the open call's arguments."""
        self.keys: set[str] = set()
        """The parameters that the open call has so far."""

    def start_call(self, name: str, call_id: str = "") -> None:
        """Begin a call whose name is known; see ``CallParser``. Mutates."""
        super().start_call(name, call_id)
        self.schema = next((Schema(tool.parameters) for tool in self.context.tools if tool.name == name), _NOTHING)
        self.keys = set()

    def end_parameters(self) -> None:
        """Close the arguments and end the call. Mutates."""
        self.arguments("}" if self.keys else "{}")
        self.end_call()

    def key(self, name: str) -> None:
        """Write the key of a value that comes next. Mutates."""
        self.arguments(("," if self.keys else "{") + json_text(name) + ":")
        self.keys.add(name)

    def parameter(
        self, name: str, ends: Markers, then: Markers | None = None, *, is_text: bool | None = None
    ) -> Reading[str]:
        """Read one value up to a marker of ``ends``, write key and value, and return that marker.

        An end counts only if, after white space, one of ``then`` follows (None: always) or the stream ends; otherwise
        it is part of the value. ``then`` is not read. ``is_text`` says, where the format itself does, that the value
        is text, or that it is JSON. Raises Unfinished if the stream ends within the value.
        """
        schema = self.schema.member(name)
        self.key(name)
        if self.newline:
            yield from self.take("\n")
        if is_text is None:
            is_text = schema.is_text or (not schema.types and (yield from self._is_plain()))
        value = _TextValue(self) if is_text else _HeldValue(self, schema)
        while True:
            marker = yield from self._until_end(ends, value)
            if not marker:
                raise Unfinished
            if then is None:
                break
            space = yield from self.spaces()
            if (yield from self._stands_here(then)):
                break
            value.add(marker)
            if space:
                value.add(space)
        value.end()
        return marker

    def _is_plain(self) -> Reading[bool]:
        """Return whether a value without a schema is text: all but objects and arrays are."""
        return (yield from self.peek()) not in ("{", "[")

    def _until_end(self, ends: Markers, value: _Value) -> Reading[str]:
        while True:
            found = ends.find(self.text, self.pos, ended=self.ended)
            if found.stop > self.pos:
                value.add(self.text[self.pos : found.stop])
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            if value.streams:
                self.pass_arguments_on(_plain_text(ends))
            yield

    def _stands_here(self, markers: Markers) -> Reading[bool]:
        """Return whether one of ``markers`` comes next, without reading it; the end of the stream counts as one."""
        while True:
            marker = markers.at(self.text, self.pos, ended=self.ended)
            if self.pos == len(self.text) or marker is None:
                if self.ended:
                    return True
                yield
                continue
            return bool(marker)


class _Value(ABC):
    """Takes a value in pieces, none of them empty, and writes it."""

    @property
    def streams(self) -> bool:
        """Whether the next piece, if it is plain text, can be written as it is."""
        return False

    def __init__(self, parser: ParameterParser) -> None:
        self._parser = parser

    @abstractmethod
    def add(self, text: str) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class _TextValue(_Value):
    """A string, written while it comes. A newline at the end waits, if it may belong to the markup."""

    def __init__(self, parser: ParameterParser) -> None:
        super().__init__(parser)
        parser.arguments('"')
        self._newline = ""

    @property
    def streams(self) -> bool:
        return not self._newline

    def add(self, text: str) -> None:
        text = self._newline + text
        self._newline = ""
        if self._parser.newline and text.endswith("\n"):
            self._newline, text = "\n", text[:-1]
        if text:
            self._parser.arguments(json_text(text)[1:-1])

    def end(self) -> None:
        self._parser.arguments('"')


class _HeldValue(_Value):
    """A value that only the schema, and the whole text, can tell the type of."""

    def __init__(self, parser: ParameterParser, schema: Schema) -> None:
        super().__init__(parser)
        self._schema = schema
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def end(self) -> None:
        text = "".join(self._pieces)
        if self._parser.newline:
            text = text.removesuffix("\n")
        self._parser.arguments(self._schema.to_json(text))


@cache
def _plain_text(ends: Markers) -> Callable[[str], object]:
    """Return a test for text that begins no end and holds nothing that JSON escapes, newlines included."""
    return re.compile(f'[^{re.escape(ends.first)}"\\\\\x00-\x1f]+').fullmatch
