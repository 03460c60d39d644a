"""What the small conversations are made of that find out what a template shows: tools, calls of them and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from .messages import Arguments, Message
from .tool_variables import ToolDicts

Show: TypeAlias = Callable[[list[Message]], str]
"""Renders messages of a conversation with ``probe_tools``. May raise anything."""

PROBE_NAMES = ("probe_first", "probe_second", "probe_third")


def probe_tools() -> ToolDicts:
    """Return the tools that are on offer in these conversations."""
    parameters = {"type": "object", "properties": {"value": {"type": "string", "description": "."}}}
    function = {"description": ".", "parameters": parameters}
    return [{"type": "function", "function": {"name": name, **function}} for name in PROBE_NAMES]


def probe_call(name: str, arguments: Mapping[str, Any], number: int = 0) -> Message:
    """Return a call, its id made of the ``number`` within its message, below ten: Mistral wants nine characters."""
    function = {"name": name, "arguments": Arguments(arguments)}
    return {"id": f"probe000{number}", "type": "function", "function": function}


def probe_result(call: Message, content: str) -> Message:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": content}
