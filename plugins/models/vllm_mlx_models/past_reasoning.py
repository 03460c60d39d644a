"""The thinking of earlier turns, under the name a template reads it by.

Clients send it as ``reasoning_content``. What of it the model should see again is the template's decision: most drop it
once the user has spoken again, and keep it within a loop of tool calls.
"""

from __future__ import annotations

import re
from typing import Any

from .messages import Message
from .probes import PROBE_NAMES, Show, probe_call
from .template import ChatTemplate

_NAMES = ("reasoning_content", "reasoning", "thinking", "thought")
"""The keys templates read reasoning from. Only one is filled: a template that reads several might print it twice."""
_READS = re.compile(rf"""(?:\.|\[\s*['"]|\bget\(\s*['"])({"|".join(_NAMES)})\b(?!\()""")
_READS_PARTS = re.compile(r"""==\s*['"]thinking['"]""")


class PastReasoning:
    """Puts reasoning where one template looks for it. Any thread; does not mutate."""

    def __init__(self, template: ChatTemplate, show: Show) -> None:
        read = set(_READS.findall(template.source))
        self._name = next((name for name in _NAMES if name in read), _NAMES[0])
        self._as_part = self._name != _NAMES[0] and bool(_READS_PARTS.search(template.source))
        self._either = self._name == "thinking" and _refuses_text_beside_thinking(show)

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
        return {**message, "content": content, self._name: reasoning}


def _refuses_text_beside_thinking(show: Show) -> bool:
    """Return whether a message with a call may have text or thinking, but not both."""
    calls = [probe_call(PROBE_NAMES[0], {})]
    message: Message = {"role": "assistant", "content": ".", "thinking": ".", "tool_calls": calls}
    try:
        show([{"role": "user", "content": "."}, {**message, "content": ""}])
    except Exception:
        return False
    try:
        show([{"role": "user", "content": "."}, message])
    except Exception:
        return True
    return False
