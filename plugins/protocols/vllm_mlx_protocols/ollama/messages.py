"""From the messages of a request to the plain dictionaries that a chat template reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest

from .schema import Message, ToolCall


def to_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages with the keys of ``api.Chat`` and no others. Pure. Raises InvalidRequest naming the field."""
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def continues(messages: Sequence[Message]) -> bool:
    """Return whether the last message is the beginning of the answer."""
    last = messages[-1]
    return last.role == "assistant" and bool(last.content) and not last.tool_calls


def refuse_images(images: Sequence[Any] | None, param: str) -> None:
    """Raise InvalidRequest if there are any."""
    if images:
        raise InvalidRequest(f"{param}: this model reads text only.", param=param)


def _message(message: Message, where: str) -> dict[str, Any]:
    refuse_images(message.images, f"{where}.images")
    result: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.role == "assistant":
        if message.thinking:
            result["reasoning_content"] = message.thinking
        if message.tool_calls:
            result["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.role == "tool":
        if message.tool_name is not None:
            result["name"] = message.tool_name
        if message.tool_call_id is not None:
            result["tool_call_id"] = message.tool_call_id
    return result


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments or {}}
    result: dict[str, Any] = {"type": "function", "function": function}
    return result if call.id is None else {"id": call.id, **result}
