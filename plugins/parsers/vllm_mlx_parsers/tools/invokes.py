"""Calls written as ``<invoke name="F"><parameter name="k">value</parameter></invoke>``: MiniMax M2, DSML and others."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading
from vllm_mlx_parsers.scan import Markers

from .parameters import ParameterParser

_ATTRIBUTE = re.compile(r"""(?:\s+(\w+))?\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=]+))""")
_ATTRIBUTES = re.compile(rf"(?:{_ATTRIBUTE.pattern})*\s*")
_CLOSE = Markers(">")
_TAG_TEXT = re.compile(r"[^<>\r\n]*")


class InvokeParser(ParameterParser):
    """Reads calls whose tags may have a ``prefix``. Subclass it; its ``calls`` uses ``invokes``.

    A missing closing tag of a value is made up for by the next parameter, if the tool declares it.
    """

    prefix: ClassVar[str] = ""
    """What stands before the name in every tag."""
    names: ClassVar[tuple[str, str]] = ("invoke", "parameter")
    """The names of the tags for a call and a parameter."""
    after_invoke: ClassVar[tuple[str, ...]] = ()
    """Markers that may follow a call. They make up for what should have closed it."""

    invoke: ClassVar[str]
    """The beginning of the tag that opens a call."""
    end_invoke: ClassVar[str]
    end_parameter: ClassVar[str]
    _parameter: ClassVar[str]
    _body: ClassVar[Markers]
    _after_value: ClassVar[Markers]
    _after_invoke: ClassVar[Markers]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        invoke, parameter = cls.names
        cls.invoke, cls.end_invoke = f"<{cls.prefix}{invoke}", f"</{cls.prefix}{invoke}>"
        cls._parameter, cls.end_parameter = f"<{cls.prefix}{parameter}", f"</{cls.prefix}{parameter}>"
        cls.nested = {cls.invoke: (cls.end_invoke, Markers(cls._parameter, cls.end_invoke))}
        cls._body = Markers(cls._parameter, cls.end_invoke, *cls.after_invoke)
        cls._after_invoke = Markers(cls.invoke, *cls.after_invoke)
        cls._after_value = Markers(*cls._body.markers, cls.invoke)
        cls.value_ends = {cls.end_parameter: cls._after_value, cls.end_invoke: cls._after_invoke}
        cls.other_ends = (cls._parameter,)
        super().__init_subclass__(**kwargs)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._next_attributes: Mapping[str, str] = {}  # of the parameter that ended the value before it

    def invokes(self, begun: str = "") -> Reading[str]:
        """Read calls from behind the first ``<invoke``; return which of ``after_invoke`` ended them, or "".

        ``begun`` is what was read already of the first one's attributes.
        """
        while True:
            tag = yield from self._invoke(begun)
            begun = ""
            if tag == self.end_invoke:
                tag = yield from self.next_tag(self._after_invoke)
            if tag != self.invoke:
                return tag

    def attributes(self, begun: str = "") -> Reading[Mapping[str, str]]:
        """Read the attributes of a tag, which ``begun`` begins, and the bracket that closes it."""
        return parse_attributes(begun + (yield from self.before(_CLOSE))[0])

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Let the next parameter end a value that nothing closed, if the tool declares it and it is still to come."""
        if marker != self._parameter:
            return (yield from super().rest_of_value(marker))
        text = yield from self.run(_TAG_TEXT)
        if not (yield from self.take(">")):
            return text
        if _ATTRIBUTES.fullmatch(text):
            self._next_attributes = parse_attributes(text)
            if self.comes_now(self._next_attributes.get("name", "")):
                return None
        return text + ">"

    def text_type(self, attributes: Mapping[str, str]) -> bool | None:
        """Return what the attributes of a parameter say of its type; see ``parameter``."""
        return None

    def _invoke(self, begun: str) -> Reading[str]:
        """Read one call from behind its ``<invoke`` and ``begun``; return the tag that ended it."""
        name = _name((yield from self.attributes(begun)))
        tag = yield from self.tag(self._body)
        self.start_call(name)
        while tag == self._parameter:
            found = self._next_attributes if self.take_next_key() else (yield from self.attributes())
            tag = yield from self.parameter(_name(found), is_text=self.text_type(found))
            if tag == self.end_parameter:
                tag = yield from self.tag(self._after_value)
        self.end_parameters()
        return tag


def parse_attributes(text: str) -> Mapping[str, str]:
    """Return the attributes written in ``text``, as XML writes them. Raises Malformed if there is anything else.

    Quotes may be missing, and ``=x`` alone is ``name="x"``.
    """
    if not _ATTRIBUTES.fullmatch(text):
        raise Malformed
    return {key or "name": html.unescape("".join(value)) for key, *value in _ATTRIBUTE.findall(text)}


def _name(attributes: Mapping[str, str]) -> str:
    if "name" not in attributes:
        raise Malformed
    return attributes["name"]
