"""The calls of GLM-4.5 and its successors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .parameters import ParameterParser

START, END = "<tool_call>", "</tool_call>"
KEY, END_KEY = "<arg_key>", "</arg_key>"
VALUE, END_VALUE = "<arg_value>", "</arg_value>"

_KEY_TEXT = re.compile(r"[^<\r\n]*")
_NAME = re.compile(r"[^\s<>{}\[\]\"']*")
_BODY = Markers(KEY, END, END_VALUE)
_ANY_BODY = Markers('{"name"', "<function=")  # also of other formats with the same tags
_AFTER_VALUE = Markers(*_BODY.markers, START)
_END_KEY, _VALUE = Markers(END_KEY), Markers(VALUE)
_STRAY = Markers(END_VALUE, END)


class GLMToolParser(ParameterParser):
    """``<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>``, with newlines between or without.

    - All white space of a text value is data.
    - ``</arg_value>`` inside a value is data unless the next tag of the call follows it, and so is a whole call. One
      too many is dropped, as are the call's own tags if they come twice. The next parameter, if the tool declares it,
      makes up for a missing one, and the next call for a missing ``</tool_call>``.
    - A call in the Hermes form inside the tags is read as well.
    """

    families = "GLM-4.5, 4.6, 4.7, 5, Spark 2.5"
    sample = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
    starts: ClassVar[tuple[str, ...]] = (START,)
    special_tokens: ClassVar[tuple[str, ...]] = (START, END, KEY, END_KEY, VALUE, END_VALUE)
    other_ends = (KEY,)
    value_ends: ClassVar[Mapping[str, Markers]] = {END_VALUE: _AFTER_VALUE, END: Markers(START)}
    nested: ClassVar[Mapping[str, tuple[str, Markers]]] = {START: (END, _ANY_BODY)}
    after_name = Markers(KEY, END)

    def calls(self, marker: str) -> Reading[None]:
        """Read one call, and those that follow without its end."""
        yield from self.spaces()
        while (yield from self.take(START)):
            yield from self.spaces()
        if (yield from self.peek()) == "{":
            yield from self.hermes_call(END)
            return
        while (yield from self._call()) == START:
            yield from self.spaces()
        while (yield from self.next_tag(_STRAY)):
            pass

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Let the next parameter end a value that nothing closed, if the tool declares it and it is still to come."""
        if marker != KEY:
            return (yield from super().rest_of_value(marker))
        key = yield from self.run(_KEY_TEXT)
        if not (yield from self.take(END_KEY)):
            return key
        space = yield from self.spaces()
        is_next = (yield from self.comes_next(_VALUE)) and self.comes_now(key.strip())
        return None if is_next else key + END_KEY + space

    def _call(self) -> Reading[str]:
        """Read one call after its opening tag; return the tag that ended it."""
        name = yield from self.run(_NAME)
        tag = yield from self._tag(_BODY)
        self.start_call(name)
        while tag == KEY:
            key = self.take_next_key() or (yield from self.before(_END_KEY))[0].strip()
            yield from self.spaces()
            yield from self.expect(VALUE)
            tag = yield from self.parameter(key)
            if tag == END_VALUE:
                tag = yield from self._tag(_AFTER_VALUE)
        self.end_parameters()
        return tag

    def _tag(self, tags: Markers) -> Reading[str]:
        """Read the next tag of the call that is not a stray end of a value."""
        while (tag := (yield from self.tag(tags))) == END_VALUE:
            pass
        return tag
