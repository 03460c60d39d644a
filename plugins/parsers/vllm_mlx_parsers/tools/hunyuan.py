"""Hunyuan's calls: a JSON list, or since Hy3 tagged parameters, between the same tags."""

from __future__ import annotations

import re

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .json_calls import JSONCallsParser
from .named_call import named_call
from .parameters import ParameterParser


def _forms(tag: str) -> tuple[str, str]:
    """Return both forms of a tag: some checkpoints give every tag a suffix."""
    return tag, tag.removesuffix(">") + ":opensource>"


_LIST, _END_LIST = _forms("<tool_calls>"), _forms("</tool_calls>")
_CALL, _END_CALL = _forms("<tool_call>"), _forms("</tool_call>")
_KEY, _END_KEY = _forms("<arg_key>"), _forms("</arg_key>")
_VALUE, _END_VALUE = _forms("<arg_value>"), _forms("</arg_value>")
_SEPARATOR = _forms("<tool_sep>")

_KEY_TEXT = re.compile(r"[^<\r\n]*")
_NAME = re.compile(r"[^\s<>{}\[\]\"']*")
_LISTS = Markers(*_LIST)
_FIRST = Markers(*_CALL)
_NEXT = Markers(*_CALL, *_END_LIST)
_BODY = Markers(*_KEY, *_END_CALL, *_END_LIST)
_CALL_ENDS = Markers(*_END_CALL)
_AFTER_NAME = Markers(*_SEPARATOR)
_AFTER_KEY = Markers(*_END_KEY)
_BEFORE_VALUE = Markers(*_VALUE)


class HunyuanToolParser(ParameterParser, JSONCallsParser):
    """``<tool_calls>[{"name": …, "arguments": {…}}, …]</tool_calls>``, perhaps inside ``<answer>…</answer>``.

    Hy3 writes ``<tool_call>NAME<tool_sep>``, ``<arg_key>k</arg_key><arg_value>v</arg_value>`` for each argument, and
    ``</tool_call>`` between the same tags; all white space of a text value is data.
    """

    families = "Hunyuan A13B and dense models, Hy3"
    sample = '<tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>'
    starts = (*_LIST, *_CALL)
    ends = _END_LIST
    strays = (*_END_LIST, *_END_CALL)
    frame = ("<answer>", "</answer>")
    special_tokens = (
        *(*_LIST, *_END_LIST, *_CALL, *_END_CALL, *_KEY, *_END_KEY, *_VALUE, *_END_VALUE, *_SEPARATOR),
        *frame,
    )
    other_ends = _KEY
    value_ends = dict.fromkeys(_END_VALUE, _BODY) | dict.fromkeys(_END_CALL, _NEXT)

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls in either form."""
        if marker in _LIST:
            yield from self.openings(_LISTS)
            if (yield from self.peek()) in ("[", "{"):
                yield from self.json_calls()
                return
            yield from self.tag(_FIRST)
        while True:
            yield from self._call()
            if (yield from self.next_tag(_NEXT)) not in _CALL:
                return

    def rest_of_value(self, marker: str) -> Reading[str | None]:
        """Let the next parameter end a value that nothing closed, if the tool declares it and it is still to come."""
        if marker not in _KEY:
            return (yield from super().rest_of_value(marker))
        key = yield from self.run(_KEY_TEXT)
        end = yield from self.one_of(_AFTER_KEY)
        space = yield from self.spaces()
        is_next = end and (yield from self.comes_next(_BEFORE_VALUE)) and self.comes_now(key.strip())
        return None if is_next else key + end + space

    def _call(self) -> Reading[None]:
        """Read one call, its closing tag included if it is there."""
        yield from self.openings(_FIRST)
        name = yield from self.run(_NAME)
        yield from self.spaces()
        separated = yield from self.one_of(_AFTER_NAME)
        yield from self.spaces()
        if separated and (yield from self.peek()) == "{":
            space = yield from named_call(self, name, _CALL_ENDS)
            if not (yield from self.one_of(_CALL_ENDS)):
                self.write(space)
            return
        tag = yield from self.tag(_BODY)
        self.start_call(name)
        while tag in _KEY:
            key = self.take_next_key() or (yield from self.before(_AFTER_KEY))[0].strip()
            yield from self.tag(_BEFORE_VALUE)
            tag = yield from self.parameter(key)
            if tag in _END_VALUE:
                tag = yield from self.tag(_BODY)
        self.end_parameters()
