"""The thinking of earlier turns, under the name a template reads it by.

Clients send it as ``reasoning_content``. What of it the model should see again is the template's decision: most drop it
once the user has spoken again, and keep it within a loop of tool calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .messages import Arguments, Message
from .template import ChatTemplate

_READS = re.compile(r"""(?:\.|\[\s*['"]|\bget\(\s*['"])(reasoning_content|reasoning|thinking|thought)\b(?!\()""")
_READS_PARTS = re.compile(r"""==\s*['"]thinking['"]""")


class PastReasoning:
    """Puts reasoning where one template looks for it. Any thread; does not mutate."""

    def __init__(self, template: ChatTemplate, show: Callable[[list[Message]], str]) -> None:
        names = set(_READS.findall(template.source))
        known = "reasoning_content" in names
        self._names = () if known else tuple(sorted(names))
        self._as_part = not known and bool(_READS_PARTS.search(template.source))
        self._either = "thinking" in self._names and _refuses_text_beside_thinking(show)

    def placed(self, messages: list[Message]) -> list[Message]:
        """Return the messages with their reasoning in place."""
        return [self._one(message) if "reasoning_content" in message else message for message in messages]

    def _one(self, message: Message) -> Message:
        reasoning, content = message["reasoning_content"], message["content"]
        if self._as_part:
            parts: list[dict[str, Any]] = [{"type": "thinking", "thinking": reasoning}]
            if content:
                parts.append({"type": "text", "text": content})
            return {**message, "content": parts}
        if self._either and content and "tool_calls" in message:
            reasoning, content = f"{reasoning}\n\n{content}", ""
        return {**message, "content": content, **dict.fromkeys(self._names, reasoning)}


def _refuses_text_beside_thinking(show: Callable[[list[Message]], str]) -> bool:
    """Return whether a message with a call may have text or thinking, but not both."""
    call = {"id": "probe0000", "type": "function", "function": {"name": "probe_first", "arguments": Arguments()}}
    message: Message = {"role": "assistant", "content": ".", "thinking": ".", "tool_calls": [call]}
    try:
        show([{"role": "user", "content": "."}, {**message, "content": ""}])
    except Exception:
        return False
    try:
        show([{"role": "user", "content": "."}, message])
    except Exception:
        return True
    return False
