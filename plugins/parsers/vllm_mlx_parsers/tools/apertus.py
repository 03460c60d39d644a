"""The calls of Apertus."""

from __future__ import annotations

from vllm_mlx_parsers.grammar import Reading
from vllm_mlx_parsers.scan import Markers

from .call_parser import CallParser
from .named_call import named_call

_START, _END = "<|tools_prefix|>", "<|tools_suffix|>"
_QUOTE = Markers('"')
_AFTER_CALL = Markers(",", "}", "]", _END)


class ApertusToolParser(CallParser):
    """``<|tools_prefix|>[{"NAME": {…}}, …]<|tools_suffix|>``: each call is an object whose one key is the name."""

    families = "Apertus"
    sample = '<|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>'
    starts = (_START,)
    ends = (_END,)
    restarts = starts
    special_tokens = (_START, _END)

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls, and the closing marker."""
        yield from self.spaces()
        yield from self.take("[")
        while True:
            yield from self.spaces()
            yield from self.expect("{")
            yield from self.spaces()
            yield from self.expect('"')
            name, _ = yield from self.before(_QUOTE)
            yield from self.spaces()
            yield from self.expect(":")
            space = yield from named_call(self, name, _AFTER_CALL)
            if not (yield from self.take(",")):
                break
        if not (yield from self.take(_END)):
            self.write(space)
