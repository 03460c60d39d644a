"""What a completion is made of, once its text has been parsed.

For every ``index`` of a tool call the order is: one ``ToolCallStart``, any number of ``ToolCallArguments``, one
``ToolCallEnd``. Calls do not overlap and indexes count up from 0. Text and reasoning may stand before, between and
after calls. A call whose ``ToolCallEnd`` never comes was cut off and is not complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec


class Chunk(NamedTuple):
    """The newest piece of one completion: its text, and the ids of the tokens it came from if they are known."""

    text: str
    token_ids: Sequence[int] = ()


class TextDelta(msgspec.Struct, frozen=True, tag=True):
    """More of the visible answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag=True):
    """More of the model's thinking."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True, tag=True):
    """A call begins; its name is known. ``id`` is unique within the completion."""

    index: int
    id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True, tag=True):
    """More of a call's arguments; all pieces of one call join to one JSON object."""

    index: int
    json: str


class ToolCallEnd(msgspec.Struct, frozen=True, tag=True):
    """The call is complete: its joined arguments are valid JSON."""

    index: int


ReasoningEvent: TypeAlias = TextDelta | ReasoningDelta
"""What a reasoning parser gives."""
ToolEvent: TypeAlias = TextDelta | ToolCallStart | ToolCallArguments | ToolCallEnd
"""What a tool parser gives."""
Event: TypeAlias = TextDelta | ReasoningDelta | ToolCallStart | ToolCallArguments | ToolCallEnd
"""What a whole completion is made of."""
