"""Functionary calls: messages to functions (v3.2), or tags around JSON (v3.1)."""

from __future__ import annotations

import re
from contextlib import suppress

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.scan import Markers

from .call_parser import CallParser
from .code_call import code_call
from .named_call import named_call

_RECIPIENT, _CODE, _TAG, _TAG_CLOSE = ">>>", "<|python_tag|>", "<function=", "</function>"
_STOPS = ("<|eom_id|>", "<|eot_id|>")
_NAME = re.compile(r"[\w.-]*")
_TAG_END = Markers(">")
_NO_ARGUMENTS = Markers(_TAG_CLOSE, _TAG, _CODE, _RECIPIENT, *_STOPS)


class FunctionaryToolParser(CallParser):
    """v3.1: ``<function=NAME>{…}</function>``, ``<|python_tag|>code``; v3.2: ``>>>all\\ntext>>>NAME\\n{…}``.

    - v3.2 writes messages, each to a recipient: ``all`` is content, ``python`` gets code, others are functions. ``>>>``
      without a name, a line break and JSON is only text. A prompt may end with the first ``>>>``; at the very start
      of a completion ``all`` or a declared name, and a line break, count as if it stood before them.
    - Code becomes the argument ``code`` of a call if the client declared a tool ``python``; otherwise it is content.
      It is complete only where a stop token or the next message follows.
    """

    families = "Functionary v3.1 and v3.2"
    sample = '>>>get_weather\n{"city": "Paris"}<|eot_id|>'
    special_tokens = (_CODE, *_STOPS)
    stop_tokens = _STOPS
    starts = (_TAG, _CODE, _RECIPIENT)
    ends = (_TAG_CLOSE, *_STOPS)
    restarts = (_TAG,)

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._recipients = ("all", *(tool.name for tool in context.tools if tool.name))
        self._openings: Markers | None = Markers(*(f"{name}\n" for name in self._recipients))
        messages = (f"{_RECIPIENT}{name}\n" for name in self._recipients)
        self._code_ends = Markers(*messages, *_STOPS)

    def content(self) -> Reading[str]:
        """Pass content on up to a start; see ``CallParser``. The completion may begin with the name of a recipient."""
        if self._openings is not None:
            openings, self._openings = self._openings, None
            with suppress(Unfinished):
                if opening := (yield from self.one_of(openings)):
                    return opening
        return (yield from super().content())

    def calls(self, marker: str) -> Reading[None]:
        """Read one call, or the header of content. Raises Malformed, Unfinished."""
        if marker == _TAG:
            name, _ = yield from self.before(_TAG_END, limit=256)
            yield from self._json_call(name)
        elif marker == _CODE:
            yield from self._python()
        else:
            name = (yield from self._recipient()) if marker == _RECIPIENT else marker.removesuffix("\n")
            if name == "python":
                yield from self._python()
            elif name == "all":
                self._cut_out()
            else:
                yield from self._json_call(name)

    def _recipient(self) -> Reading[str]:
        """Read a name and a line break, and return the name. Only declared ones may lack their arguments."""
        name = yield from self.run(_NAME)
        char = yield from self.peek()
        if not char and any(each.startswith(name) for each in self._recipients):
            raise Unfinished
        if char != "\n" or not name:
            raise Malformed
        self.pos += 1
        if name not in (*self._recipients, "python") and (yield from self.peek()) != "{":
            raise Malformed
        return name

    def _json_call(self, name: str) -> Reading[None]:
        space = yield from named_call(self, name, _NO_ARGUMENTS)
        if not (yield from self.take(_TAG_CLOSE)):
            self.write(space)

    def _python(self) -> Reading[None]:
        """Read code, or the JSON with code that the template shows the model."""
        if not self.context.declares("python"):
            self._cut_out()
        elif (yield from self.peek()) == "{":
            yield from self._json_call("python")
        else:
            yield from code_call(self, "python", self._code_ends)
