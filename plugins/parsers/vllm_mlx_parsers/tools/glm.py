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

_NAME = re.compile(r"[^\s<>{}\[\]\"']*")
_BODY = Markers(KEY, END, END_VALUE)
_ANY_BODY = Markers(KEY, END, '{"name"', "<function=")  # also of other formats with the same tags
_AFTER_VALUE = Markers(*_BODY.markers, START)
_END_KEY = Markers(END_KEY)
_STRAY = Markers(END_VALUE, END)


class GLMToolParser(ParameterParser):
    """``<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>``, with newlines between or without.

    - All white space of a text value is data.
    - ``</arg_value>`` inside a value is data unless the next tag of the call follows it, and so is a whole call. One
      too many is dropped, as are the call's own tags if they come twice; the next call makes up for a missing
      ``</tool_call>``.
    - A call in the Hermes form inside the tags is read as well.
    """

    families = "GLM-4.5, 4.6, 4.7, 5, Spark 2.5"
    sample = "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"
    starts: ClassVar[tuple[str, ...]] = (START,)
    special_tokens: ClassVar[tuple[str, ...]] = (START, END, KEY, END_KEY, VALUE, END_VALUE)
    value_ends: ClassVar[Mapping[str, Markers]] = {END_VALUE: _AFTER_VALUE, END: Markers(START)}
    nested: ClassVar[Mapping[str, tuple[str, Markers]]] = {START: (END, _ANY_BODY)}

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

    def _call(self) -> Reading[str]:
        """Read one call after its opening tag; return the tag that ended it."""
        name = yield from self.run(_NAME)
        tag = yield from self._tag(_BODY)
        self.start_call(name)
        while tag == KEY:
            key, _ = yield from self.before(_END_KEY)
            yield from self.spaces()
            yield from self.expect(VALUE)
            tag = yield from self.parameter(key.strip())
            if tag == END_VALUE:
                tag = yield from self._tag(_AFTER_VALUE)
        self.end_parameters()
        return tag

    def _tag(self, tags: Markers) -> Reading[str]:
        """Read the next tag of the call that is not a stray end of a value."""
        while (tag := (yield from self.tag(tags))) == END_VALUE:
            pass
        return tag
