"""From items to the messages that a chat template reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest
from vllm_mlx_protocols.media import left_out
from vllm_mlx_protocols.reading import read

from .items import (
    CallItem,
    Content,
    CustomCallItem,
    Item,
    MessageItem,
    OutputItem,
    Part,
    ReasoningItem,
    kind,
)

_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_MEDIA = frozenset({"input_image", "input_file", "input_audio", "computer_screenshot", "image_url", "file"})
INPUT = "input"


class Conversation:
    """Messages that grow item by item. An answer of several items (thoughts, text, calls) is one message."""

    def __init__(self, instructions: str | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self._thoughts = ""
        if instructions:
            self.messages.append({"role": "system", "content": instructions})

    def extend(self, items: Sequence[Item], *, where: str = INPUT) -> None:
        """Add items in order. Mutates. Raises InvalidRequest naming the field; items of foreign tools are skipped."""
        for index, item in enumerate(items):
            self._add(item, f"{where}[{index}]")

    def _add(self, item: Item, where: str) -> None:
        match kind(item):
            case "message":
                self._say(read(MessageItem, item, where), where)
            case "reasoning":
                self._thoughts += read(ReasoningItem, item, where).text
            case "function_call":
                call = read(CallItem, item, where)
                if call.status != "incomplete":  # a call that was cut off was never made
                    self._call(call.call_id, call.name, call.arguments or "{}")
            case "custom_tool_call":
                custom = read(CustomCallItem, item, where)
                self._call(custom.call_id, custom.name, json.dumps({"input": custom.input}))
            case "function_call_output" | "custom_tool_call_output":
                result = read(OutputItem, item, where)
                content = _content(result.output, f"{where}.output", is_result=True)
                self._append({"role": "tool", "tool_call_id": result.call_id, "content": content})
            case "":
                raise InvalidRequest(f"{where}.type must be a string.", param=f"{where}.type")

    def _say(self, message: MessageItem, where: str) -> None:
        content = _content(message.content, f"{where}.content")
        if message.role != "assistant":
            self._append({"role": message.role, "content": content})
            return
        last = self._open_turn()
        if last is not None and "tool_calls" not in last and last["content"] is None:
            last["content"] = content
        elif last is not None and "tool_calls" in last and isinstance(content, str):
            last["content"] = (last["content"] or "") + content
        else:
            self._answer(content)

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        last = self._open_turn() or self._answer(None)
        function = {"name": name, "arguments": arguments}
        last.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})

    def _open_turn(self) -> dict[str, Any] | None:
        """Return the assistant's message that goes on; thoughts begin a new one."""
        last = self.messages[-1] if self.messages else None
        return last if last is not None and last["role"] == "assistant" and not self._thoughts else None

    def _answer(self, content: Any) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if self._thoughts:
            message["reasoning_content"] = self._thoughts
        self._append(message)
        return message

    def _append(self, message: dict[str, Any]) -> None:
        self._thoughts = ""
        self.messages.append(message)


def _content(content: Content, where: str, *, is_result: bool = False) -> str | list[dict[str, Any]]:
    """Return a text as it is, and so the only part of a content: templates treat both alike, caches do not."""
    if isinstance(content, str):
        return content
    texts = [
        left_out(part.type) if is_result and part.type in _MEDIA else _text(part, f"{where}[{index}]")
        for index, part in enumerate(content)
    ]
    if len(texts) <= 1:
        return "".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _text(part: Part, where: str) -> str:
    if part.type in _TEXTS or part.type == "refusal":
        name = "refusal" if part.type == "refusal" else "text"
        text: str | None = getattr(part, name)
        if text is None:
            raise InvalidRequest(f"{where}.{name} is required.", param=f"{where}.{name}")
        return text
    param = f"{where}.type"
    if part.type in _MEDIA:
        raise InvalidRequest(f"{param}: this model reads text only, not {part.type}.", param=param)
    raise InvalidRequest(f"{param}: there is no content part of this type.", param=param)
