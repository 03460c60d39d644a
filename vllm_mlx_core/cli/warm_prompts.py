"""The file of ``--warm-prompts``: a JSON list of conversations, each as the body of a chat request has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from vllm_mlx_core.api import Chat, Tool, UsageError


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct):
    function: _Function


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]
    tools: list[_Tool] = []
    chat_template_kwargs: dict[str, Any] = {}


def read(file: Path) -> list[Chat]:
    """Return the conversations of a file.

    An entry is a list of messages, or an object with ``messages`` and perhaps ``tools`` and ``chat_template_kwargs``.
    Raises UsageError if the file cannot be read or an entry has another shape. What the model's template makes of it
    is not looked at.
    """
    try:
        entries = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise UsageError(f"--warm-prompts: cannot read {file}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:  # a NUL in the path, not UTF-8, not JSON
        raise UsageError(f"--warm-prompts: {file} is not JSON: {error}.") from error
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"--warm-prompts: {file} must hold a JSON list of conversations, and at least one.")
    return [_chat(entry, f"--warm-prompts: {file}, entry {number}") for number, entry in enumerate(entries, 1)]


def _chat(entry: object, where: str) -> Chat:
    if not isinstance(entry, list | dict):
        raise UsageError(f"{where} is neither a list of messages nor an object with messages.")
    try:
        found = msgspec.convert(entry if isinstance(entry, dict) else {"messages": entry}, _Entry)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}.") from error
    if not found.messages:
        raise UsageError(f"{where} has no messages.")
    for index, message in enumerate(found.messages):
        if not isinstance(message.get("role"), str) or not message["role"]:
            raise UsageError(f"{where}: messages[{index}] has no role.")
    return Chat(
        messages=found.messages,
        tools=tuple(_tool(each.function) for each in found.tools),
        template_kwargs=found.chat_template_kwargs,
    )


def _tool(function: _Function) -> Tool:
    return Tool(function.name, function.description, function.parameters or {}, bool(function.strict))
