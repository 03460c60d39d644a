"""The calls of Qwen3-Coder, and of the many models that learned them."""

from __future__ import annotations

import re
from typing import ClassVar

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading
from vllm_mlx_parsers.scan import Markers

from .parameters import ParameterParser

FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"

_NAME = re.compile(r"[^<>\r\n]*")


class FunctionTagToolParser(ParameterParser):
    """Reads functions inside a wrapper, as ``Qwen3CoderToolParser`` says. Subclass it and set ``start`` and ``end``."""

    start: ClassVar[str]
    end: ClassVar[str]
    newline = True
    other_ends = (PARAMETER,)

    _body: ClassVar[Markers]
    _after_call: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: object) -> None:
        if hasattr(cls, "start"):
            cls.starts = (cls.start, FUNCTION)
            cls.special_tokens = (cls.start, cls.end)
            cls._body = Markers(PARAMETER, END_FUNCTION, cls.end)
            cls._after_call = Markers(FUNCTION, cls.end)
            cls.value_ends = {
                END_PARAMETER: cls._body,
                END_FUNCTION: Markers(FUNCTION, cls.start, cls.end),
                cls.end: Markers(cls.start),
            }
        super().__init_subclass__(**kwargs)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._next_key: str | None = None  # the key in an opening tag that ended the value before it
        self._key_names: frozenset[str] = frozenset()
        self._key_markers: Markers | None = None

    def calls(self, marker: str) -> Reading[None]:
        """Read functions, one after the other, and what closes their wrapper."""
        self.bare = marker == FUNCTION
        if not self.bare:
            yield from self.spaces()
            if (yield from self.peek()) == "{":
                yield from self.hermes_call(self.end)
                return
            yield from self.expect(FUNCTION)
        while True:
            closed = yield from self._function()
            if closed or (yield from self.next_tag(self._after_call)) != FUNCTION:
                return

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Let the next parameter end a value that nothing closed, if the tool declares it and it is still to come."""
        if marker != PARAMETER:
            return (yield from super().rest_of_value(marker))
        names = self.schema.member_names
        if not names:
            return ""
        key = yield from self.one_of(self._keys(names))
        if key and key[:-1] not in self.keys:
            self._next_key = key[:-1]
            return None
        return key

    def _function(self) -> Reading[bool]:
        """Read one function after its opening ``<function=``; return whether its end closed the wrapper, too."""
        name = yield from self._name()
        if self.bare and not self.context.declares(name):
            raise Malformed
        tag = yield from self.tag(self._body)
        self.start_call(name)
        while tag == PARAMETER:
            key, self._next_key = self._next_key, None
            tag = yield from self.parameter((yield from self._name()) if key is None else key)
            if tag == END_PARAMETER:
                tag = yield from self.tag(self._body)
        self.end_parameters()
        return tag == self.end

    def _name(self) -> Reading[str]:
        """Read a name or key, and the bracket that closes its tag."""
        name = yield from self.run(_NAME)
        yield from self.expect(">")
        return name.strip(" \t\"'")

    def _keys(self, names: frozenset[str]) -> Markers:
        if self._key_markers is None or names is not self._key_names:
            self._key_names = names
            self._key_markers = Markers(*(name + ">" for name in names))
        return self._key_markers


class Qwen3CoderToolParser(FunctionTagToolParser):
    """``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``, a newline after each tag.

    - Exactly one newline on either side of a value is markup, the rest of its white space is data.
    - The wrapper may be missing; then only a declared name makes a call. It may hold several functions.
    - A closing tag inside a value is data unless the next tag of the call follows it. A missing closing tag is made up
      for by the next parameter, if the tool declares it, or by the end of the function.
    - A call in the Hermes form inside the wrapper is read as well.
    """

    families = "Qwen3-Coder, Qwen3.5, Qwen3.6, Nemotron 3, Step-3.5, MiMo-V2"
    sample = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    start = "<tool_call>"
    end = "</tool_call>"
