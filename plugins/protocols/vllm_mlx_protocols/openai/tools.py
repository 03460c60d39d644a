"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from vllm_mlx_core.api import InvalidRequest, Tool
from vllm_mlx_protocols.http import encode

from . import limits
from .schema import ToolDefinition


class ToolUse(NamedTuple):
    """What a request's tools and its ``tool_choice`` come to.

    Tools that must not be called are not offered: a model that sees them writes calls to them as text.
    """

    offered: Sequence[Tool]
    allowed: bool = True
    required: bool = False


def to_tools(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Return the declared tools. Raises InvalidRequest if two have one name or a schema is too large."""
    tools: dict[str, Tool] = {}
    for index, definition in enumerate(definitions or ()):
        function = definition.function
        where = f"tools[{index}].function"
        if function.name in tools:
            raise InvalidRequest(f"{where}.name: there are two tools of this name.", param=f"{where}.name")
        if function.parameters is not None and len(encode(function.parameters)) > limits.MAX_SCHEMA_BYTES:
            raise InvalidRequest(
                f"{where}.parameters is larger than {limits.MAX_SCHEMA_BYTES} bytes.", param=f"{where}.parameters"
            )
        tools[function.name] = Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters or {},
            strict=bool(function.strict),
        )
    return tuple(tools.values())


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
