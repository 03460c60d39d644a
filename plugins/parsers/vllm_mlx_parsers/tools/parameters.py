"""Calls whose parameters come one by one, as plain text between tags: the base of the XML-like formats."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.scan import Markers
from vllm_mlx_parsers.schema import Schema, json_escaped, json_text

from .call_parser import CallParser
from .json_call import JSONCall

_UNKNOWN = Schema({})
_SURPLUS = re.compile(r"[ \t\r\n}\]]*")
_HEAD = re.compile(r"[^<>{}\r\n]*")
_NAME = re.compile(r"\s*\w[\w.:/-]*\s*")
"""A name behind an opening tag."""
_ATTRIBUTE = re.compile(r"""(?:\s*name\s*=)?\s*["']?[^\s"'`=,;()\\]+["']?\s*""")
"""What stands in an opening tag: a name, perhaps in quotes and as an attribute."""
_LONGEST_NULL = 64  # characters, white space included, of a text that may stand for null


class ParameterParser(CallParser):
    """A parser of calls with tagged parameters. Its ``calls`` uses, in this order::

        self.start_call(name)
        yield from self.parameter(key)      # for each
        self.end_parameters()

    Values get their types from the declared tool's schema. Text streams while it is generated; a value that may be
    something else waits for its end, the others of the call do not. A parameter that comes twice counts once: its
    first value stands.
    """

    value_ends: ClassVar[Mapping[str, Markers]]
    """Markers that end a value, and what must follow each, after white space, for it to do so. The end of the stream
    may always follow."""
    other_ends: ClassVar[tuple[str, ...]] = ()
    """More markers that may end a value. Only an override of ``rest_of_value`` can say when they do."""
    nested: ClassVar[Mapping[str, tuple[str, Markers]]] = {}
    """The beginnings of the tags that open a call; for each, the tag that closes it, and what follows it in a call, but
    not in prose. A value may hold whole calls, as examples do, and the tags in them end nothing."""
    after_name: ClassVar[Markers | None] = None
    """What follows the name of a call that stands behind one of these tags; None if none does."""
    newline: ClassVar[bool] = False
    """Whether one newline on either side of a value belongs to the markup."""
    inline: ClassVar[bool] = False
    """Whether values usually stand on the line of their tags, so that with ``newline`` one at the end belongs to the
    markup only if there is one at the beginning."""

    _value_ends: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "value_ends"):
            cls._value_ends = Markers(*cls.value_ends, *cls.other_ends, *cls.nested)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self.schema = _UNKNOWN
        """The schema of the open call's arguments."""
        self.padded = False
        """Whether a newline at the end of the value that is being read belongs to the markup."""
        self.own_line = False
        """Whether that value began on a line of its own."""
        self.line_begins = False
        """If it did: whether there is only white space so far on its last line."""
        self.keys: set[str] = set()
        """The parameters that the open call has so far."""
        self.next_key = ""
        """The key of the parameter that ended a value, because nothing else did; see ``comes_now``."""
        self._schemas: dict[str, Schema] = {}

    # -- what a format's grammar uses -----------------------------------------------------------------------------

    def start_call(self, name: str, call_id: str = "") -> None:
        """Begin a call whose name is known; see ``CallParser``. Mutates."""
        super().start_call(name, call_id)
        self.schema = self._schema(name)
        self.keys, self.next_key = set(), ""

    def end_parameters(self) -> None:
        """Close the arguments and end the call. Mutates."""
        self.arguments("}" if self.keys else "{}")
        self.end_call()

    def key(self, name: str) -> None:
        """Write the key of a value that comes next. Mutates."""
        self.arguments(("," if self.keys else "{") + json_text(name) + ":")
        self.keys.add(name)

    def tag(self, tags: Markers) -> Reading[str]:
        """Read white space and one of ``tags``; return it. Raises Malformed if none is there, Unfinished."""
        yield from self.spaces()
        tag = yield from self.one_of(tags)
        if not tag:
            raise Malformed if self.pos < len(self.text) else Unfinished
        return tag

    def next_tag(self, tags: Markers) -> Reading[str]:
        """Read one of ``tags`` after a call, and the white space before it; "" if there is none.

        The white space then belongs to the content.
        """
        space = yield from self.spaces()
        tag = yield from self.one_of(tags)
        if not tag and space:
            self.write(space)
        return tag

    def hermes_call(self, end: str) -> Reading[None]:
        """Read a call written as one JSON object, which models fall back to, and the tag ``end`` if it is there."""
        yield from self.json_call(JSONCall(), Markers(end))
        yield from self.run(_SURPLUS)
        yield from self.take(end)

    def parameter(self, name: str, *, is_text: bool | None = None) -> Reading[str]:
        """Read one value and the marker that ends it, write key and value, and return that marker.

        ``is_text`` says, where the format itself does, that the value is text, or that it is JSON. Raises Unfinished
        if the stream ends within the value.
        """
        if self.newline:
            self.own_line = self.line_begins = yield from self.take("\n")
            self.padded = self.own_line or not self.inline
        value = yield from self.new_value(name, is_text)
        nested: list[str] = []  # what closes the calls that the value holds, as far as they are open
        around: list[str] = []  # what closes the tags around a call that may come next
        while True:
            marker = yield from self.until_end(self._value_ends, value)
            if not marker:
                raise Unfinished
            rest: str | None = ""
            if marker in self.nested:
                rest, following = yield from self._rest_of_opening(marker)
                around = [*around, self.nested[marker][0]] if following else []
                if following not in self.nested:
                    nested += around
                    around = []
            elif nested:
                if marker in nested:
                    nested.remove(marker)
            else:
                rest = yield from self.rest_of_value(marker)
            if rest is None:
                value.end()
                return marker
            self._add(value, marker + rest)

    def _add(self, value: Value, text: str) -> None:
        """Hand ``text``, not empty, to ``value``. Mutates."""
        value.add(text)
        _, newline, line = text.rpartition("\n")
        self.line_begins = bool(newline or self.line_begins) and not line.strip()

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Return None if ``marker``, just read, ends the value; else what was read after it, which belongs to it.

        Override it for ``other_ends``.
        """
        space = yield from self.spaces()
        return space if (yield from self.comes_next(self.value_ends[marker])) == "" else None

    def comes_now(self, key: str) -> bool:
        """Return whether a parameter that begins inside a value is the next one, so that its closing tag is missing.

        The tool must declare it, and it must be still to come. Keeps the key, which was read. Mutates.
        """
        comes = key in self.schema.member_names and key not in self.keys
        if comes:
            self.next_key = key
        return comes

    def take_next_key(self) -> str:
        """Return the key that was read already, or "". Mutates."""
        key, self.next_key = self.next_key, ""
        return key

    # -- how values are read --------------------------------------------------------------------------------------

    def _schema(self, tool_name: str) -> Schema:
        if tool_name not in self._schemas:
            tool = next((tool for tool in self.context.tools if tool.name == tool_name), None)
            self._schemas[tool_name] = _UNKNOWN if tool is None else Schema(tool.parameters)
        return self._schemas[tool_name]

    def new_value(self, name: str, is_text: bool | None = None) -> Reading[Value]:
        """Write the key and return what takes its value."""
        if name in self.keys:
            return RepeatedValue()
        schema = self.schema.member(name)
        self.key(name)
        if is_text is False:
            return HeldValue(self, schema.json_of)
        if schema.is_text or (is_text and (not schema.types or "string" in schema.types)):
            return TextValue(self)
        if not schema.types:
            space = yield from self.spaces()
            value: Value = HeldValue(self, schema.to_json)
            if (yield from self.peek()) not in ("{", "["):
                value = TextValue(self)
            if space:
                value.add(space)
            return value
        return NullableText(self, schema.to_json) if schema.is_nullable_text else HeldValue(self, schema.to_json)

    def _rest_of_opening(self, marker: str) -> Reading[tuple[str, str]]:
        """Read the rest of what may be a tag that opens a call, or the name behind it, and white space.

        Return that, and what then comes next as in a call; "" if it opens none.
        """
        _, body = self.nested[marker]
        following: Markers | None = None
        head = yield from self.run(_HEAD)
        if marker.endswith(">"):
            following = body if not head.strip() else self.after_name if _NAME.fullmatch(head) else None
        elif (yield from self.take(">")):
            following = body if _ATTRIBUTE.fullmatch(head) else None
            head += ">"
        head += yield from self.spaces()
        return head, "" if following is None else (yield from self.comes_next(following)) or ""

    def until_end(self, ends: Markers, value: Value) -> Reading[str]:
        """Hand everything before the first of ``ends`` to ``value``; read the end and return it, or "" at the end."""
        while True:
            found = ends.find(self.text, self.pos, ended=self.ended)
            if found.stop > self.pos:
                self._add(value, self.text[self.pos : found.stop])
            self.pos = found.next
            if found.marker or self.ended:
                return found.marker
            if value.streams and not self.line_begins:
                self.pass_arguments_on(_plain_text(ends, lines=self.padded), json_escaped)
            yield

    def comes_next(self, markers: Markers) -> Reading[str | None]:
        """Return which of ``markers`` comes next, without reading it: "" if none does, None if the stream ends."""
        while True:
            marker = markers.at(self.text, self.pos, ended=self.ended)
            if self.pos < len(self.text) and marker is not None:
                return marker
            if self.ended:
                return None
            yield


class Value(ABC):
    """Takes a value in pieces, none of them empty, and writes it."""

    @property
    def streams(self) -> bool:
        """Whether the next piece is text that can be written at once."""
        return False

    @abstractmethod
    def add(self, text: str) -> None:
        """Take the next piece. Mutates."""

    @abstractmethod
    def end(self) -> None:
        """Write what was held back: the value is complete. Mutates."""


class RepeatedValue(Value):
    """The value of a parameter that the call has already: nothing is written."""

    def add(self, text: str) -> None:
        """Drop the piece."""

    def end(self) -> None:
        """Do nothing."""


class TextValue(Value):
    """A string, written while it comes. A newline at the end waits, if it may belong to the markup."""

    def __init__(self, parser: ParameterParser) -> None:
        self._parser = parser
        self._newline = ""
        parser.arguments('"')

    @property
    def streams(self) -> bool:
        """Whether no newline waits."""
        return not self._newline

    def add(self, text: str) -> None:
        """Write the piece."""
        text = self._newline + text
        self._newline = ""
        if self._parser.padded and text.endswith("\n"):
            self._newline, text = "\n", text[:-1]
        if text:
            self._parser.arguments(json_escaped(text))

    def end(self) -> None:
        """Close the string."""
        self._parser.arguments('"')


class HeldValue(Value):
    """A value whose JSON only ``convert`` and the whole text can tell."""

    def __init__(self, parser: ParameterParser, convert: Callable[[str], str]) -> None:
        self._parser = parser
        self._convert = convert
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Keep the piece."""
        self._pieces.append(text)

    def end(self) -> None:
        """Write the whole value."""
        text = "".join(self._pieces)
        if self._parser.padded:
            text = text.removesuffix("\n")
        self._parser.arguments(self._convert(text))


class NullableText(HeldValue):
    """A string or null: held only while it may still be null."""

    def __init__(self, parser: ParameterParser, convert: Callable[[str], str]) -> None:
        super().__init__(parser, convert)
        self._text: TextValue | None = None

    @property
    def streams(self) -> bool:
        """Whether it is a string, and no newline waits."""
        return self._text is not None and self._text.streams

    def add(self, text: str) -> None:
        """Keep the piece, or write all as a string once it can be nothing else."""
        if self._text is not None:
            self._text.add(text)
            return
        super().add(text)
        text = "".join(self._pieces)
        word = text.strip()
        if len(text) > _LONGEST_NULL or not ("null".startswith(word) or "None".startswith(word)):
            self._text = TextValue(self._parser)
            self._text.add(text)

    def end(self) -> None:
        """Close the string, or write what it is."""
        if self._text is None:
            super().end()
        else:
            self._text.end()


@lru_cache(256)
def _plain_text(ends: Markers, *, lines: bool) -> Callable[[str], object]:
    """Return a test for text that begins no end, and with ``lines`` does not end in white space."""
    first = re.escape(ends.first)
    return re.compile(rf"[^{first}]*[^{first}\s]" if lines else f"[^{first}]+").fullmatch
