"""From the messages of a request to the plain dictionaries that a chat template reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest
from vllm_mlx_protocols.media import left_out

from .schema import ContentPart, Message, ToolCall

_MEDIA = frozenset({"image_url", "input_audio", "audio_url", "video_url", "file"})


def to_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages with the keys of ``api.Chat`` and no others. Raises InvalidRequest naming the field."""
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Message, where: str) -> dict[str, Any]:
    if message.function_call is not None:
        raise InvalidRequest(f"{where}.function_call is not supported: use tool_calls.", param=f"{where}.function_call")
    result: dict[str, Any] = {"role": message.role, "content": _content(message, where)}
    if message.role == "assistant":
        if reasoning := message.reasoning_content or message.reasoning:
            result["reasoning_content"] = reasoning
        if message.tool_calls:
            result["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.role == "tool" and message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        result["name"] = message.name
    return result


def _content(message: Message, where: str) -> str | list[dict[str, Any]] | None:
    """Return the content. Only an assistant's may be missing; a tool that returned nothing returned the empty text."""
    if message.content is None:
        if message.role == "assistant":
            return None
        if message.role == "tool":
            return ""
        raise InvalidRequest(f"{where}.content is required.", param=f"{where}.content")
    if isinstance(message.content, str):
        return message.content
    is_result = message.role == "tool"
    return [_part(part, f"{where}.content[{index}]", is_result) for index, part in enumerate(message.content)]


def _part(part: ContentPart, where: str, is_result: bool) -> dict[str, Any]:
    if part.type == "text" or (part.type == "refusal" and part.refusal is None):
        if part.text is None:
            raise InvalidRequest(f"{where}.text is required.", param=f"{where}.text")
        return {"type": "text", "text": part.text}
    if part.type == "refusal":
        return {"type": "text", "text": part.refusal}
    param = f"{where}.type"
    if part.type in _MEDIA and is_result:
        return {"type": "text", "text": left_out(part.type)}
    if part.type in _MEDIA:
        raise InvalidRequest(f"{param}: this model reads text only, not {part.type}.", param=param)
    raise InvalidRequest(f"{param}: there is no content part of this type.", param=param)


def _tool_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    function = {"name": call.function.name, "arguments": "{}" if arguments in (None, "") else arguments}
    result: dict[str, Any] = {"type": "function", "function": function}
    if call.id is not None:
        result["id"] = call.id
    return result
