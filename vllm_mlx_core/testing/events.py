"""Joining, comparing and checking the events of a completion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from vllm_mlx_core.api import Event, ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart


@dataclass(frozen=True, slots=True)
class Folded:
    """A completion in one piece: what a client that does not stream is sent."""

    content: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    """Name and decoded arguments of every call that ended."""
    unfinished: Sequence[tuple[str, str]] = ()
    """Name and raw arguments of every call that began and never ended."""


def fold(events: Iterable[Event]) -> Folded:
    """Join events. Raises ValueError if the arguments of an ended call are not JSON."""
    content: list[str] = []
    reasoning: list[str] = []
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    ended: set[int] = set()
    for event in events:
        match event:
            case TextDelta(text=text):
                content.append(text)
            case ReasoningDelta(text=text):
                reasoning.append(text)
            case ToolCallStart(index=index, name=name):
                names[index] = name
                arguments[index] = ""
            case ToolCallArguments(index=index, json=piece):
                arguments[index] += piece
            case ToolCallEnd(index=index):
                ended.add(index)
    return Folded(
        "".join(content),
        "".join(reasoning),
        [(names[index], json.loads(arguments[index])) for index in sorted(ended)],
        [(names[index], arguments[index]) for index in sorted(names.keys() - ended)],
    )


def join(events: Iterable[Event]) -> list[Event]:
    """Return events with neighbouring deltas of one kind joined, and the ids of calls, which are random, replaced."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case TextDelta(text=first), TextDelta(text=second):
                joined[-1] = TextDelta(first + second)
            case ReasoningDelta(text=first), ReasoningDelta(text=second):
                joined[-1] = ReasoningDelta(first + second)
            case ToolCallArguments(index=one, json=first), ToolCallArguments(index=other, json=second) if one == other:
                joined[-1] = ToolCallArguments(one, first + second)
            case _, ToolCallStart(index=index):
                joined.append(msgspec.structs.replace(event, id=f"call {index}"))
            case _:
                joined.append(event)
    return joined


def check_events(events: Iterable[Event]) -> None:
    """Raise AssertionError, saying which event is wrong, unless events keep the rules of ``vllm_mlx_core.api``.

    No delta is empty. Calls count up from 0, have a name and an id of their own, and do not overlap. Arguments and end
    belong to the call that began last, and nothing but arguments stands between its start and its end; text or another
    call before the end abandons it. The arguments of an ended call join to one JSON object.
    """
    ids: set[str] = set()
    count = 0
    open_call: int | None = None
    arguments: list[str] = []
    for position, event in enumerate(events):
        where = f"event {position}, {event!r}: "
        match event:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                assert text, f"{where}an empty delta"
                open_call = None
            case ToolCallStart(index=index, id=id_, name=name):
                assert index == count, f"{where}calls count up from 0, so {count} was due"
                assert name, f"{where}a call without a name"
                assert id_, f"{where}a call without an id"
                assert id_ not in ids, f"{where}the id was used before"
                ids.add(id_)
                count += 1
                open_call = index
                arguments = []
            case ToolCallArguments(index=index, json=piece):
                assert index == open_call, f"{where}this call is not open"
                assert piece, f"{where}an empty delta"
                arguments.append(piece)
            case ToolCallEnd(index=index):
                assert index == open_call, f"{where}this call is not open"
                _check_object("".join(arguments), where)
                open_call = None
            case _:
                raise AssertionError(f"{where}not an event")


def _check_object(text: str, where: str) -> None:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise AssertionError(f"{where}the arguments {text!r} are not JSON: {error}") from error
    assert isinstance(value, dict), f"{where}the arguments {text!r} are not an object"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
