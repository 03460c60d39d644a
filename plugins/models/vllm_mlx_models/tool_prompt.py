"""What the model is told about tools where its template does not tell it anything."""

from __future__ import annotations

import json

from .messages import Message
from .tool_variables import ToolDicts

HERMES_SAMPLE = '<tool_call>\n{"name": <function name>, "arguments": <arguments as a JSON object>}\n</tool_call>'


def with_tool_prompt(messages: list[Message], tools: ToolDicts, sample: str) -> list[Message]:
    """Return the messages with the tools and a sample call described in the first system message. Does not mutate."""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    text = (
        "# Tools\n\n"
        "You can call the functions that are described here in JSON:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "When a function helps to answer, reply only with its name and arguments, in this form, once for each call:\n"
        f"{sample}\n"
        "The results follow in the next message. When no function helps, answer as usual."
    )
    if messages[0]["role"] in ("system", "developer"):
        first, *others = messages
        return [{**first, "content": "\n\n".join(filter(None, [first["content"], text]))}, *others]
    return [{"role": "system", "content": text}, *messages]
