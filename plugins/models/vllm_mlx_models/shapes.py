"""Other messages that say the same, for templates that refuse or lose what was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from .messages import Message

Shape: TypeAlias = Callable[[list[Message]], list[Message]]
"""Says the same in other messages. Does not mutate."""


def as_sent(messages: list[Message]) -> list[Message]:
    """Change nothing."""
    return messages


def one_after_another(*shapes: Shape) -> Shape:
    """Return the shape that applies these in order; without any it changes nothing."""

    def shape(messages: list[Message]) -> list[Message]:
        for each in shapes:
            messages = each(messages)
        return messages

    return shape


def result_text(content: str) -> str:
    """Return how the user passes on a result."""
    return f"<tool_response>\n{content}\n</tool_response>"
