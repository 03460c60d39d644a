"""The calls of MiniMax M3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.scan import Markers
from vllm_mlx_parsers.schema import Schema, json_text

from .invokes import parse_attributes
from .parameters import ParameterParser, Value

MARK = "]<]minimax[>["
START, END = "<tool_call>", "</tool_call>"
INVOKE, END_INVOKE, END_BLOCK = "<invoke", "/invoke", "/tool_call"
ITEM = "item"

_MARK = Markers(MARK)
_CLOSE = Markers(">")
_BLOCK = Markers(START, END, INVOKE)
_AFTER_CALL = Markers(INVOKE, END)
_DEEPEST = 64  # elements inside each other


@dataclass(slots=True)
class Element:
    """What stands in one tag: text, or other elements."""

    name: str
    pieces: list[str] = field(default_factory=list)
    children: list[Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text, without that of the children."""
        return "".join(self.pieces)


class MiniMaxM3ToolParser(ParameterParser):
    """``<tool_call><invoke name="F"><key>value</key></invoke></tool_call>``, every tag after ``]<]minimax[>[``.

    - Objects are elements in elements, arrays are elements called ``item``, or one element repeated.
    - Types come from the schema at any depth. A text value streams, with all its white space; one that may be
      something else waits for the next tag.
    - The mark may be missing before a closing tag that another tag follows, and before ``<tool_call>``.
    """

    families = "MiniMax M3"
    sample = (
        f'{MARK}<tool_call>\n{MARK}<invoke name="get_weather">{MARK}<city>Paris{MARK}</city>{MARK}</invoke>\n'
        f"{MARK}</tool_call>"
    )
    starts = (MARK, START)
    special_tokens = (MARK, START, END)

    def calls(self, marker: str) -> Reading[None]:
        """Read the calls of one block."""
        tag = START if marker == START else (yield from self.one_of(_BLOCK))
        if tag == END:
            return  # of a block whose calls were no calls
        if tag == START:
            yield from self.spaces()
            yield from self.expect(MARK)
            tag = yield from self.one_of(_AFTER_CALL)
        while tag == INVOKE:
            if (yield from self._invoke()) == END_BLOCK:
                return
            if not (yield from self.next_tag(_MARK)):
                return
            tag = yield from self.one_of(_AFTER_CALL)
        if tag != END:
            raise Malformed if self.pos < len(self.text) else Unfinished

    def _invoke(self) -> Reading[str]:
        """Read one call; return the name of the tag that ended it."""
        header, _ = yield from self.before(_CLOSE)
        name = parse_attributes(header).get("name", "")
        tag = yield from self._next_name()
        self.start_call(name)
        while tag not in (END_INVOKE, END_BLOCK):
            tag = yield from self._argument(tag)
        self.end_parameters()
        return tag

    def _next_name(self) -> Reading[str]:
        """Read white space and a tag; return its name, with a slash in front if it closes."""
        yield from self.spaces()
        yield from self.expect(MARK)
        return (yield from self._name())

    def _name(self) -> Reading[str]:
        yield from self.expect("<")
        name, _ = yield from self.before(_CLOSE)
        return name.strip()

    def _argument(self, name: str) -> Reading[str]:
        """Read the value of one argument, and the next tag; return its name."""
        if not name or name.startswith("/"):
            raise Malformed
        schema = self.schema.member(name)
        if name in self.keys:
            yield from self._element(name)  # it came before, with others in between
            return (yield from self._next_name())
        if schema.is_text or schema.is_nullable_text:
            yield from self._text(name, (yield from self.new_value(name)))
            return (yield from self._next_name())
        elements: list[Element] = []
        tag = name
        while tag == name:
            elements.append((yield from self._element(name)))
            tag = yield from self._next_name()
        self.key(name)
        self.arguments(_elements_json(elements, schema))
        return tag

    def _text(self, name: str, value: Value) -> Reading[None]:
        """Read a text, and the tag that closes it. Tags in it that do not are part of it."""
        ends = _ends(name)
        while True:
            marker = yield from self.until_end(ends, value)
            if not marker:
                raise Unfinished
            if marker == MARK:
                closes, rest = (yield from self.take(f"</{name}>")), ""
            else:
                closes, rest = yield from self._closes_unmarked(name)
            if closes:
                value.end()
                return
            value.add(marker + rest)

    def _element(self, name: str) -> Reading[Element]:
        """Read what stands in an element, and the tag that closes it."""
        path = [Element(name)]
        while True:
            element = path[-1]
            marker = yield from self.until(_ends(element.name), element.pieces.append)
            if not marker:
                raise Unfinished
            if marker == MARK:
                tag = yield from self._name()
                closes = tag == f"/{element.name}"
                if not closes:
                    if not tag or tag.startswith("/") or len(path) == _DEEPEST:
                        raise Malformed
                    path.append(Element(tag))
            else:
                closes, rest = yield from self._closes_unmarked(element.name)
                if not closes:
                    element.pieces.append(marker + rest)
            if closes:
                path.pop()
                if element.children and element.text.strip():
                    raise Malformed
                if not path:
                    return element
                path[-1].children.append(element)

    def _closes_unmarked(self, name: str) -> Reading[tuple[bool, str]]:
        """Return whether a closing tag without the mark counts, and else the white space after it."""
        space = yield from self.spaces()
        return (yield from self.comes_next(_after(name))) in (MARK, None), space


@lru_cache(256)
def _ends(name: str) -> Markers:
    return Markers(MARK, f"</{name}>")


@lru_cache(256)
def _after(name: str) -> Markers:
    """The mark, and the mark with a closing tag, which shows that the one before it was text."""
    return Markers(MARK, f"{MARK}</{name}>")


def _elements_json(elements: Sequence[Element], schema: Schema) -> str:
    """Return the JSON of what elements of one name, next to each other, stand for."""
    if len(elements) == 1:
        return _json(elements[0], schema)
    return f"[{','.join(_json(element, schema.items) for element in elements)}]"


def _json(element: Element, schema: Schema) -> str:
    only_array = schema.types == {"array"}
    if not element.children:
        text = element.text
        if not text.strip() and schema.types in ({"array"}, {"object"}):
            return "[]" if only_array else "{}"
        json = schema.to_json(text)
        return f"[{schema.items.to_json(text)}]" if only_array and json.startswith('"') else json
    if all(child.name == ITEM for child in element.children) and ITEM not in schema.member_names:
        return f"[{','.join(_json(child, schema.items) for child in element.children)}]"
    if only_array:
        return f"[{_object_json(element, schema.items)}]"
    return _object_json(element, schema)


def _object_json(element: Element, schema: Schema) -> str:
    members: dict[str, list[Element]] = {}
    for child in element.children:
        members.setdefault(child.name, []).append(child)
    pairs = (f"{json_text(name)}:{_elements_json(same, schema.member(name))}" for name, same in members.items())
    return f"{{{','.join(pairs)}}}"
