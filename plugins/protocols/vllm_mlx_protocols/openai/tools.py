"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest, Tool
from vllm_mlx_protocols import limits
from vllm_mlx_protocols.tools import ToolUse, checked_schema, unique

from .schema import Function, ToolDefinition


def to_tools(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Return the declared tools. Raises InvalidRequest if two have one name or a schema is too large."""
    return unique(
        (f"tools[{index}].function.name", _tool(definition.function, f"tools[{index}].function"))
        for index, definition in enumerate(definitions or ())
    )


def choose(choice: str | dict[str, Any] | None, tools: Sequence[Tool]) -> ToolUse:
    """Return which of the tools are offered, and whether a call is allowed or demanded. Raises InvalidRequest."""
    if choice in (None, "auto"):
        return ToolUse(tools)
    if choice == "none":
        return ToolUse((), allowed=False)
    if isinstance(choice, str):
        if choice != "required":
            raise _wrong("tool_choice must be none, auto, required, or an object that names functions.")
        return _demand(tools, tools)
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return _demand(_named(tools, {name}), tools)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(wanted)}}:
            offered = _named(tools, {_function_name(each) for each in wanted})
            return ToolUse(offered) if mode == "auto" else _demand(offered, tools)
    raise _wrong(
        'tool_choice must look like {"type": "function", "function": {"name": …}} or '
        '{"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": […]}}.'
    )


def _tool(function: Function, where: str) -> Tool:
    return Tool(
        name=function.name,
        description=function.description,
        parameters=checked_schema(function.parameters, f"{where}.parameters"),
        strict=bool(function.strict),
    )


def _demand(offered: Sequence[Tool], tools: Sequence[Tool]) -> ToolUse:
    if not tools:
        raise _wrong("tool_choice demands a call, but there are no tools.")
    if not offered:
        raise _wrong("tool_choice demands a call, but allows no tool.")
    return ToolUse(offered, required=True)


def _named(tools: Sequence[Tool], names: Collection[str]) -> Sequence[Tool]:
    if missing := set(names) - {tool.name for tool in tools}:
        raise _wrong(f"tool_choice names a tool that is not declared: {min(missing)[: limits.MAX_NAME_CHARS]}.")
    return tuple(tool for tool in tools if tool.name in names)


def _function_name(wanted: object) -> str:
    match wanted:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    raise _wrong('tool_choice: every allowed tool must look like {"type": "function", "function": {"name": …}}.')


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="tool_choice")
