"""Calls written as JSON objects between two tags: the base of Hermes and its relatives."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from vllm_mlx_parsers.grammar import Reading

from .call_parser import CallParser

_SURPLUS = re.compile(r"[ \t\r\n}\]]*")


class TaggedJSONToolParser(CallParser):
    """Reads ``START {"name": …, "arguments": {…}} END``, repeated; subclass it and set ``start`` and ``end``.

    A call is complete when its object closes: the closing tag may be missing, more objects may stand in one block, and
    surplus closing brackets are dropped.
    """

    start: ClassVar[str]
    end: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.starts, cls.ends = (cls.start,), (cls.end,)
        cls.special_tokens = (cls.start, cls.end)
        super().__init_subclass__(**kwargs)

    def calls(self, marker: str) -> Reading[None]:
        """Read one object after another, and the closing tag."""
        yield from self.json_call()
        while True:
            yield from self.run(_SURPLUS)
            if (yield from self.take(self.end)) or (yield from self.peek()) != "{":
                return
            yield from self.json_call()
