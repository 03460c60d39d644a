"""Messages as clients send them, put into the one shape that chat templates expect. Never mutates its input.

- ``content`` is a string: text parts are joined by a newline, null and missing become empty. Parts that are not text
  are refused, since a model that reads text only would silently lose them.
- ``arguments`` of a call is an object. A JSON string is decoded; one that is not valid JSON, or nested too deeply, is
  kept under ``_raw``.
- ``developer`` is ``system``, unless the template knows the role.
- Ids are strings; those that are neither text nor a number are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from vllm_mlx_core.api import InvalidRequest, Tool

from .tool_schemas import without_nulls

Message = dict[str, Any]

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_MEDIA_PARTS = {
    "image": "images",
    "image_url": "images",
    "input_image": "images",
    "input_audio": "audio",
    "audio": "audio",
    "audio_url": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
}
_SHAPED = frozenset({"content", "tool_calls", "reasoning"})
"""Keys of a message whose values are not passed on as they are."""
DEEPEST = 128
"""Most levels of objects and arrays within each other: templates go through them by recursion."""


class Arguments(dict[str, Any]):
    """The arguments of a call. Where a template treats them as text, they are JSON."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other: object) -> str:
        return f"{self}{other}"

    def __radd__(self, other: object) -> str:
        return f"{other}{self}"


def normalize(messages: Sequence[Mapping[str, Any]], *, keep_developer: bool = False) -> list[Message]:
    """Return the messages in the templates' shape. Raises InvalidRequest naming the offending message and part."""
    if not messages:
        raise InvalidRequest("messages must hold at least one message.", param="messages")
    return [_normalize_one(message, f"messages[{i}]", keep_developer) for i, message in enumerate(messages)]


def tool_dicts(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """Return the tools in the shape templates expect, or None if there are none. Raises InvalidRequest."""
    if not tools:
        return None
    return [{"type": "function", "function": _function(tool, f"tools[{i}].function")} for i, tool in enumerate(tools)]


def _function(tool: Tool, where: str) -> Message:
    parameters = without_nulls(plain(tool.parameters, f"{where}.parameters"))
    return {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": parameters or {"type": "object", "properties": {}},
    }


def _normalize_one(message: Mapping[str, Any], where: str, keep_developer: bool) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest(f"{where}.role must be a non-empty string.", param=f"{where}.role")
    passed_on = {key: value for key, value in message.items() if value is not None and key not in _SHAPED}
    shaped = {key: plain(value, f"{where}.{key}") for key, value in passed_on.items()}
    shaped["role"] = "system" if role == "developer" and not keep_developer else role
    shaped["content"] = _text(message.get("content"), f"{where}.content")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str) and reasoning:
        shaped["reasoning_content"] = reasoning
    else:
        shaped.pop("reasoning_content", None)
    _set_id(shaped, "tool_call_id", message.get("tool_call_id"))
    calls = message.get("tool_calls")
    if calls:
        if isinstance(calls, str) or not isinstance(calls, Sequence):
            raise InvalidRequest(f"{where}.tool_calls must be a list.", param=f"{where}.tool_calls")
        shaped["tool_calls"] = [_call(call, f"{where}.tool_calls[{j}]") for j, call in enumerate(calls)]
    return shaped  # without the key if there are none: templates test for it, and clients send an empty list


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping) or not isinstance(content, Sequence):
        raise InvalidRequest(f"{where} must be a string or a list of content parts.", param=where)
    return "\n".join(_part(part, f"{where}[{j}]") for j, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise InvalidRequest(f"{where} must be an object with a type.", param=where)
    kind = part.get("type")
    if kind in _TEXT_PARTS or (kind == "refusal" and "refusal" in part):
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise InvalidRequest(f"{where}.text must be a string.", param=f"{where}.text")
        return text
    if isinstance(kind, str) and kind in _MEDIA_PARTS:
        raise InvalidRequest(f"{where}: this model reads text only, not {_MEDIA_PARTS[kind]}.", param=where)
    raise InvalidRequest(f"{where} has the unknown type {kind!r}.", param=where)


def _call(call: Any, where: str) -> Message:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequest(f"{where} must hold a function with a name.", param=where)
    shaped = {"type": "function", "function": {"name": function["name"], "arguments": _arguments(function)}}
    _set_id(shaped, "id", call.get("id"))
    return shaped


def _set_id(shaped: Message, key: str, given: Any) -> None:
    """Set an id, which some clients send as a number; remove it if it is none."""
    shaped.pop(key, None)
    if given is not None and isinstance(given, str | int) and not isinstance(given, bool):
        shaped[key] = str(given)


def _arguments(function: Mapping[str, Any]) -> Arguments:
    given = function.get("arguments")
    value = given
    for _ in range(2):  # some clients encode twice
        if not isinstance(value, str):
            break
        try:
            value = json.loads(value) if value.strip() else {}
        except (ValueError, RecursionError):
            break
    if value is None:
        return Arguments()
    if isinstance(value, Mapping):
        with suppress(InvalidRequest):
            return Arguments(plain(value, "arguments"))
    return Arguments(_raw=given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))


def plain(value: Any, where: str, levels: int = DEEPEST) -> Any:
    """Copy JSON-like data into dictionaries and lists, which templates test for.

    Raises InvalidRequest naming ``where`` if there are more than so many levels.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Mapping | Sequence):
        return value
    if not levels:
        raise InvalidRequest(f"{where} is nested more than {DEEPEST} levels deep.", param=where)
    if isinstance(value, Mapping):
        return {str(key): plain(item, where, levels - 1) for key, item in value.items()}
    return [plain(item, where, levels - 1) for item in value]
