"""What the model is told about tools where its template does not tell it anything."""

from __future__ import annotations

import json

from .messages import Message
from .tool_variables import ToolDicts

HERMES_SAMPLE = '<tool_call>\n{"name": "FUNCTION_NAME", "arguments": {"ARGUMENT_NAME": "ARGUMENT_VALUE"}}\n</tool_call>'


def with_tool_prompt(messages: list[Message], tools: ToolDicts, sample: str) -> list[Message]:
    """Return the messages with the tools and a sample call described in the first system message. Does not mutate."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    text = (
        "# Functions\n\n"
        "You can call these functions, each described by a JSON object:\n"
        f"{listed}\n\n"
        "When one of them helps, call it by writing its name and its arguments like this, and nothing after it:\n"
        f"{sample}\n"
        "For several calls, write one after the other. The results follow in the next message. When no function helps, "
        "answer as usual."
    )
    if messages[0]["role"] in ("system", "developer"):
        first, *others = messages
        return [{**first, "content": "\n\n".join(filter(None, [first["content"], text]))}, *others]
    return [{"role": "system", "content": text}, *messages]
