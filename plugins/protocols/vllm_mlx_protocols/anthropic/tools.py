"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mlx_core.api import InvalidRequest, Tool
from vllm_mlx_protocols.http import encode
from vllm_mlx_protocols.openai import limits

from .schema import ToolChoice, ToolDefinition


class ToolUse(NamedTuple):
    """What a request's tools and its ``tool_choice`` come to.

    Tools that must not be called are not offered: a model that sees them writes calls to them as text.
    """

    offered: Sequence[Tool]
    allowed: bool = True
    required: bool = False
    parallel: bool = True


def to_tools(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Return the declared tools. Raises InvalidRequest naming the field."""
    tools: dict[str, Tool] = {}
    for index, definition in enumerate(definitions or ()):
        tool = _tool(definition, f"tools[{index}]")
        if tool.name in tools:
            param = f"tools[{index}].name"
            raise InvalidRequest(f"{param}: there are two tools of this name.", param=param)
        tools[tool.name] = tool
    return tuple(tools.values())


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
    if len(encode(definition.input_schema)) > limits.MAX_SCHEMA_BYTES:
        raise InvalidRequest(f"{param} is larger than {limits.MAX_SCHEMA_BYTES} bytes.", param=param)
    return Tool(definition.name, definition.description, definition.input_schema, bool(definition.strict))


def _named(name: str | None, tools: Sequence[Tool]) -> Sequence[Tool]:
    if name is None:
        raise InvalidRequest("tool_choice.name is required.", param="tool_choice.name")
    if tools and not any(tool.name == name for tool in tools):
        raise InvalidRequest("tool_choice.name is not the name of a declared tool.", param="tool_choice.name")
    return tuple(tool for tool in tools if tool.name == name)
