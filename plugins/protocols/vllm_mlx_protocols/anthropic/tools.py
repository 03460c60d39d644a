"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import InvalidRequest, Tool
from vllm_mlx_protocols.tools import ToolUse, checked_schema, unique

from .schema import ToolChoice, ToolDefinition


def to_tools(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Return the declared tools. Raises InvalidRequest naming the field."""
    return unique(
        (f"tools[{index}].name", _tool(definition, f"tools[{index}]"))
        for index, definition in enumerate(definitions or ())
    )


def choose(choice: ToolChoice | None, tools: Sequence[Tool]) -> ToolUse:
    """Return which of the tools are offered, and whether a call is allowed or demanded. Raises InvalidRequest."""
    if choice is None:
        return ToolUse(tools)
    parallel = not choice.disable_parallel_tool_use
    match choice.type:
        case "auto":
            return ToolUse(tools, parallel=parallel)
        case "none":
            return ToolUse((), allowed=False)
        case "tool":
            tools = _named(choice.name, tools)
    if not tools:
        raise InvalidRequest("tool_choice demands a call, but there are no tools.", param="tool_choice")
    return ToolUse(tools, required=True, parallel=parallel)


def _tool(definition: ToolDefinition, where: str) -> Tool:
    if definition.type not in (None, "custom"):
        param = f"{where}.type"
        raise InvalidRequest(
            f"{param}: {definition.type[:64]} is a tool of Anthropic's own; declare it with an input_schema instead.",
            param=param,
        )
    if definition.name is None:
        raise InvalidRequest(f"{where}.name is required.", param=f"{where}.name")
    param = f"{where}.input_schema"
    if definition.input_schema is None:
        raise InvalidRequest(f"{param} is required.", param=param)
    schema = checked_schema(definition.input_schema, param)
    return Tool(definition.name, definition.description, schema, bool(definition.strict))


def _named(name: str | None, tools: Sequence[Tool]) -> Sequence[Tool]:
    if name is None:
        raise InvalidRequest("tool_choice.name is required.", param="tool_choice.name")
    if tools and not any(tool.name == name for tool in tools):
        raise InvalidRequest("tool_choice.name is not the name of a declared tool.", param="tool_choice.name")
    return tuple(tool for tool in tools if tool.name == name)
