"""Calls written as text, for templates that leave the calls of earlier turns to whoever fills in the content."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .messages import Message
from .template import ChatTemplate

CallForm: TypeAlias = Callable[[Sequence[Message]], str]
"""Writes the calls of one message, as the model would have written them."""


def hermes(calls: Sequence[Message]) -> str:
    """A JSON object for each call, between tags of its own."""
    return "\n".join(f"<tool_call>\n{_object(call)}\n</tool_call>" for call in calls)


def granite(calls: Sequence[Message]) -> str:
    """A marker, then the calls in one JSON list."""
    return f"<|tool_call|>[{', '.join(map(_object, calls))}]"


def pythonic(calls: Sequence[Message]) -> str:
    """A Python list of function calls, between the tags of LFM2."""
    written = []
    for call in calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call["function"]["arguments"].items())
        written.append(f"{call['function']['name']}({arguments})")
    return f"<|tool_call_start|>[{', '.join(written)}]<|tool_call_end|>"


_FORMS: tuple[tuple[str, CallForm], ...] = (
    ("<|tool_call|>", granite),
    ("<|tool_list_start|>", pythonic),
    ("List of tools: [", pythonic),
)


def call_form(template: ChatTemplate) -> CallForm:
    """Return the form that a template's model was trained on, as far as its marks tell; else that of Hermes."""
    return next((form for mark, form in _FORMS if template.mentions(mark)), hermes)


def _object(call: Message) -> str:
    function: dict[str, Any] = call["function"]
    return json.dumps({"name": function["name"], "arguments": function["arguments"]}, ensure_ascii=False)
