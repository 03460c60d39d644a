"""Mistral's calls, in the form of each generation of its models."""

from __future__ import annotations

import re
import secrets
import string

from vllm_mlx_core.api import ParserContext
from vllm_mlx_parsers.grammar import Malformed, Reading, Unfinished
from vllm_mlx_parsers.scan import Markers

from .json_call import JSONCall
from .json_calls import JSONCallsParser
from .named_call import named_call

_ALPHANUMERIC = string.ascii_letters + string.digits
_ID = re.compile("[A-Za-z0-9]{9}")
_NAME = re.compile(r"[^\s\[\]{}()<>\"'`,]+")
_AFTER_NAME = Markers("[CALL_ID]", "[ARGS]")
_NEXT = Markers("[TOOL_CALLS]")


class MistralToolParser(JSONCallsParser):
    """``[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`` up to tokenizer 7, then ``[TOOL_CALLS]NAME[ARGS]{…}``.

    The second form is repeated for each call; an id may stand in it as ``[CALL_ID]xxxxxxxxx``, and ``[ARGS]`` may be
    missing. Ids have nine letters and digits, because Mistral's templates refuse all others; one that the model wrote
    counts if it is such an id.
    """

    families = "Mistral, Mixtral, Ministral, Magistral, Devstral, Pixtral"
    sample = '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}'
    starts = ("[TOOL_CALLS]",)
    special_tokens = (*starts, "[CALL_ID]", "[ARGS]")

    def __init__(self, context: ParserContext) -> None:
        super().__init__(context)
        self._taken_ids: set[str] = set()

    def calls(self, marker: str) -> Reading[None]:
        """Read a list of calls, or a name and its arguments."""
        yield from self.openings(_NEXT)
        if (yield from self.peek()) in ("[", "{"):
            yield from self.json_calls()
            return
        name = yield from self.run(_NAME)
        call_id = ""
        space = yield from self.spaces()
        while (after := (yield from self.one_of(_AFTER_NAME))) == "[CALL_ID]":
            call_id = yield from self.run(_NAME)
        if not after and (space or call_id or (yield from self.peek()) != "{"):
            raise Unfinished if self.pos == len(self.text) else Malformed
        self.write((yield from named_call(self, name, _NEXT, call_id)))

    def new_call(self) -> JSONCall:
        """Return what reads a call of a list."""
        return JSONCall(id_key="id")

    def new_id(self, name: str) -> str:
        """Return nine random letters and digits."""
        return "".join(secrets.choice(_ALPHANUMERIC) for _ in range(9))

    def start_call(self, name: str, call_id: str = "") -> None:
        """Begin a call; an id that Mistral would not accept, or that another call has, is replaced. Mutates."""
        while not _ID.fullmatch(call_id) or call_id in self._taken_ids:
            call_id = self.new_id(name)
        self._taken_ids.add(call_id)
        super().start_call(name, call_id)
