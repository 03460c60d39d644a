"""Calls written as Python: Llama 4 and 3.2, LFM2, Olmo 3."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.python_scan import PLAIN_PYTHON, PythonScanner
from vllm_mlx_parsers.scan import Markers

from .json_call import JSONCall
from .parameters import ParameterParser

_NAME = re.compile(r"[\w.-]+")
_BETWEEN = re.compile(r"[ \t\r\n,;]*")
_ENDS = ("<|tool_call_end|>", "</function_calls>", "<|python_end|>")
_CLOSING = Markers(*_ENDS)
_plain = PLAIN_PYTHON.fullmatch


class PythonicToolParser(ParameterParser):
    """``[get_weather(city='Paris'), now()]``, bare or between a family's markers.

    - Between markers any name is a call, brackets may be missing, and calls may stand on lines of their own. LFM2 can
      be told to write JSON there, and that is read as well.
    - A bare list is read at the beginning of the answer or of a line only, up to its closing bracket, and only if the
      names in it are declared.
    - Arguments are Python literals and keep the types they are written with. An argument without a keyword belongs to
      the declared parameter at its place.
    """

    families = "Llama 4, Llama 3.2, LFM2, LFM2.5, Olmo 3"
    sample = "[get_weather(city='Paris')]"
    starts = ("<|tool_call_start|>", "<function_calls>", "<|python_start|>", "<|python_tag|>", "[")
    ends = _ENDS
    special_tokens = (*starts[:-1], *ends)
    stop_tokens = ("<|eom|>", "<|eom_id|>")

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls and, if a marker opened it, what closes it."""
        self.bare = marker == "["
        if self.bare:
            if not self.begins_line:
                raise Malformed
            yield from self._list()
            return
        yield from self.spaces()
        if (yield from self.take("[")):
            yield from self._list()
        else:
            yield from self._lines()
            yield from self.take("]")
        space = yield from self.spaces()
        if not (yield from self.one_of(_CLOSING)):
            self.write(space)

    def _list(self) -> Reading[None]:
        """Read calls with commas between them, and the bracket behind them."""
        while True:
            yield from self.spaces()
            yield from self._call()
            yield from self.spaces()
            if (yield from self.take("]")):
                return
            yield from self.expect(",")
            yield from self.spaces()
            if (yield from self.take("]")):
                return

    def _lines(self) -> Reading[None]:
        """Read calls without brackets around them, as long as there are more."""
        yield from self._call()
        while True:
            between = yield from self.run(_BETWEEN)
            if not _NAME.match((yield from self.peek())):
                self.write(between)
                return
            yield from self._call()

    def _call(self) -> Reading[None]:
        if not self.bare and (yield from self.peek()) == "{":
            yield from self.json_call(JSONCall(), _CLOSING)
            return
        name = yield from self.run(_NAME)
        yield from self.expect("(")
        self.start_call(name)
        positional = self._places(name)
        while True:
            yield from self.spaces()
            if (yield from self.take(")")):
                break
            yield from self._argument(positional)
            yield from self.spaces()
            if not (yield from self.take(",")):
                yield from self.expect(")")
                break
        self.end_parameters()

    def _places(self, name: str) -> Iterator[str]:
        """Return the declared parameters of a tool in their order: those that arguments without a keyword are for."""
        for tool in self.context.tools:
            properties = tool.parameters.get("properties")
            if tool.name == name and isinstance(properties, Mapping):
                return map(str, properties)
        return iter(())

    def _argument(self, positional: Iterator[str]) -> Reading[None]:
        scanner = PythonScanner()
        word = yield from self.run(_NAME)
        space = (yield from self.spaces()) if word else ""
        if word and (yield from self.take("=")):
            keyword = word
        elif not (yield from self.peek()):
            raise Unfinished
        else:
            keyword = next(positional, "")
            scanner.feed(word + space)
        if not keyword or keyword in self.keys:
            raise Malformed
        self.key(keyword)
        yield from self.scan_arguments(scanner, _plain)
