"""The calls of Qwen3-Coder, and of the many models that learned them."""

from __future__ import annotations

import re
from typing import ClassVar

from vllm_mlx_parsers.grammar import Malformed, Reading
from vllm_mlx_parsers.scan import Markers

from .parameters import ParameterParser

FUNCTIONS, END_FUNCTION = ("<function=", "<function name="), "</function>"
PARAMETERS, END_PARAMETER = ("<parameter=", "<parameter name="), "</parameter>"

_ANY_BODY = Markers(*FUNCTIONS, '{"name"')  # also of other formats with the same tags
_NAME = re.compile(r"[^<>\r\n]*")
_FUNCTION = Markers(*FUNCTIONS)


class FunctionTagToolParser(ParameterParser):
    """Reads functions inside a wrapper, as ``Qwen3CoderToolParser`` says. Subclass it and set ``start`` and ``end``."""

    start: ClassVar[str]
    end: ClassVar[str]
    newline = True
    other_ends = PARAMETERS
    after_name = Markers("<arg_key>")

    _body: ClassVar[Markers]
    _after_value: ClassVar[Markers]
    _after_function: ClassVar[Markers]
    _surplus: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: object) -> None:
        if hasattr(cls, "start"):
            cls.starts = (cls.start, *FUNCTIONS)
            cls.special_tokens = (cls.start, cls.end)
            cls.nested = {
                cls.start: (cls.end, _ANY_BODY),
                **dict.fromkeys(FUNCTIONS, (END_FUNCTION, Markers(*PARAMETERS, END_FUNCTION))),
            }
            cls._body = Markers(*PARAMETERS, END_FUNCTION, cls.end)
            cls._after_value = Markers(*cls._body.markers, *cls.starts)
            cls._after_function = Markers(*FUNCTIONS, END_FUNCTION, cls.end)
            cls._surplus = Markers(END_FUNCTION, cls.end)
            cls.value_ends = {
                END_PARAMETER: cls._after_value,
                END_FUNCTION: Markers(*FUNCTIONS, cls.start, cls.end),
                cls.end: Markers(cls.start),
            }
        super().__init_subclass__(**kwargs)

    def calls(self, marker: str) -> Reading[None]:
        """Read functions, one after the other, and what closes their wrapper."""
        self.bare = True
        while marker not in ("", self.end):
            if marker == self.start:
                self.bare = False
                yield from self.spaces()
                while (yield from self.take(self.start)):
                    yield from self.spaces()
                if (yield from self.peek()) == "{":
                    yield from self.hermes_call(self.end)
                    return
                yield from self.tag(_FUNCTION)
            marker = yield from self._function()
            while marker == END_FUNCTION:
                marker = yield from self.next_tag(self._after_function)
        while marker:
            marker = yield from self.next_tag(self._surplus)

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Let the next parameter end a value that nothing closed, if the tool declares it and it is still to come.

        A value on lines of its own goes on in the middle of a line.
        """
        if marker not in PARAMETERS:
            return (yield from super().rest_of_value(marker))
        if self.own_line and not self.line_begins:
            return ""
        text = yield from self.run(_NAME)
        if not (yield from self.take(">")):
            return text
        return None if self.comes_now(_plain(text)) else text + ">"

    def _function(self) -> Reading[str]:
        """Read one function after its opening ``<function=``; return the tag that ended it."""
        name = yield from self._name()
        if self.bare and not self.context.declares(name):
            raise Malformed
        tag = yield from self.tag(self._body)
        self.start_call(name)
        while tag in PARAMETERS:
            tag = yield from self.parameter(self.take_next_key() or (yield from self._name()))
            if tag == END_PARAMETER:
                tag = yield from self.tag(self._after_value)
        self.end_parameters()
        return tag

    def _name(self) -> Reading[str]:
        """Read a name or key, and the bracket that closes its tag."""
        name = yield from self.run(_NAME)
        yield from self.expect(">")
        return _plain(name)


def _plain(name: str) -> str:
    return name.strip(" \t\"'")


class Qwen3CoderToolParser(FunctionTagToolParser):
    """``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``, a newline after each tag.

    - Exactly one newline on either side of a value is markup, the rest of its white space is data.
    - The wrapper may be missing; then only a declared name makes a call. It may hold several functions.
    - A closing tag inside a value is data unless the next tag of the call follows it, and so is a whole call. A missing
      closing tag is made up for by the next parameter, if the tool declares it and its tag stands as the first did, or
      by the end of the function; that of a function by the next call.
    - Names may be in quotes, and tags may be written ``<function name="NAME">``.
    - An opening tag of the wrapper, or closing tags, that come twice do no harm.
    - A call in the Hermes form inside the wrapper is read as well.
    """

    families = "Qwen3-Coder, Qwen3.5, Qwen3.6, Nemotron 3, Step-3.5, MiMo-V2"
    sample = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    start = "<tool_call>"
    end = "</tool_call>"
