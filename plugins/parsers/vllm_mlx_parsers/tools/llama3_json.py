"""The calls of Llama 3 and 4 in JSON, and the other forms that these models know."""

from __future__ import annotations

import re

from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.json_scan import PLAIN_STRING, JSONScanner
from vllm_mlx_parsers.scan import Markers
from vllm_mlx_parsers.schema import json_text

from .bare_json import BareJSONParser
from .code_call import code_call
from .named_call import named_call

_TAG = "<|python_tag|>"
_FUNCTION = "<function="
_IDENTIFIER = re.compile(r"\w+")
_NAME_END = Markers(">")
_FUNCTION_END = Markers("</function>")
_CODE_TOOLS = ("code_interpreter", "python", "ipython")
_plain_string = PLAIN_STRING.fullmatch


class Llama3JSONToolParser(BareJSONParser):
    """``{"name": …, "parameters": {…}}``, perhaps after ``<|python_tag|>``; several calls separated by ``;``.

    Without the tag a call must name a declared tool and have arguments. ``<function=NAME>{…}</function>`` is read as
    well. After the tag may also stand ``NAME.call(key="value")``, or Python code: that is a call of the code tool
    (``code_interpreter``, ``python`` or ``ipython``, with one argument ``code``) if the client declared one, complete
    once the end token comes, and content if not.
    """

    families = "Llama 3.1, 3.2, 3.3, and 4 with a JSON template"
    sample = '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}'
    starts = (*BareJSONParser.starts, _TAG, _FUNCTION)
    stop_tokens = ("<|eom_id|>", "<|eot_id|>")
    special_tokens = (_TAG, *stop_tokens)

    _code_end = Markers(*stop_tokens)

    def calls(self, marker: str) -> Reading[None]:
        """Read calls in the form that ``marker`` begins."""
        if marker == _FUNCTION:
            self.bare = False
            name, _ = yield from self.before(_NAME_END)
            space = yield from named_call(self, name, _FUNCTION_END)
            if not (yield from self.one_of(_FUNCTION_END)):
                self.write(space)
        elif marker == _TAG:
            self.bare = False
            yield from self.spaces()
            if (yield from self.peek()) in self.starts:
                yield from self.json_calls()
            else:
                yield from self._python()
        else:
            yield from super().calls(marker)

    def _python(self) -> Reading[None]:
        word = yield from self.run(_IDENTIFIER)
        if word and (yield from self.take(".call(")):
            self.start_call(word)
            yield from self._keywords()
            return
        if not (yield from self.peek()):
            raise Unfinished
        tool = next(filter(self.context.declares, _CODE_TOOLS), None)
        if tool is None:
            self.write(word)
        else:
            yield from code_call(self, tool, self._code_end, word)

    def _keywords(self) -> Reading[None]:
        """Read ``key=value, …)``, values in JSON, and end the call."""
        separator = "{"
        yield from self.spaces()
        while not (yield from self.take(")")):
            if separator != "{":
                yield from self.expect(",")
                yield from self.spaces()
            key = yield from self.run(_IDENTIFIER)
            yield from self.spaces()
            yield from self.expect("=")
            if not key:
                raise Malformed
            self.arguments(f"{separator}{json_text(key)}: ")
            yield from self.scan_arguments(JSONScanner(), _plain_string)
            yield from self.spaces()
            separator = ", "
        self.arguments("{}" if separator == "{" else "}")
        self.end_call()
