"""What waits to be delivered goes out in as few events as say the same."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ReasoningDelta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.engine.event_buffer import EventBuffer

START, END = ToolCallStart(0, "id", "f"), ToolCallEnd(0)


@pytest.mark.parametrize(
    ("events", "delivered"),
    [
        ([TextDelta("a"), TextDelta("b")], [TextDelta("ab")]),
        ([ReasoningDelta("a"), ReasoningDelta("b")], [ReasoningDelta("ab")]),
        ([ReasoningDelta("a"), TextDelta("b"), ReasoningDelta("c")], None),
        ([TextDelta("a"), ReasoningDelta(""), TextDelta(""), TextDelta("b")], [TextDelta("ab")]),
        (
            [START, ToolCallArguments(0, "{"), ToolCallArguments(0, "}"), END],
            [START, ToolCallArguments(0, "{}"), END],
        ),
        ([ToolCallArguments(0, "{}"), ToolCallArguments(1, "{}")], None),
        ([START, END, TextDelta("a"), ToolCallStart(1, "id2", "f"), ToolCallEnd(1)], None),
    ],
)
def test_neighbours_that_say_more_of_the_same_are_joined_and_all_else_keeps_its_order(events, delivered):
    buffer = EventBuffer()
    for event in events:
        buffer.add(event)
    assert buffer
    assert buffer.take() == (events if delivered is None else delivered)
    assert not buffer
    assert buffer.take() == []


def test_what_was_taken_does_not_grow_any_more():
    buffer = EventBuffer()
    buffer.add(TextDelta("a"))
    first = buffer.take()
    buffer.add(TextDelta("b"))
    assert (first, buffer.take()) == ([TextDelta("a")], [TextDelta("b")])


def test_nothing_but_empty_text_is_nothing_to_deliver():
    buffer = EventBuffer()
    buffer.add(TextDelta(""))
    buffer.add(ReasoningDelta(""))
    assert not buffer
