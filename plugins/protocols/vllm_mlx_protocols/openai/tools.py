"""Which tools the model is offered, and whether it may call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import InvalidRequest, Tool

from .schema import ToolDefinition


def to_tools(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Return the declared tools. Raises InvalidRequest if two have one name."""
    tools: dict[str, Tool] = {}
    for index, definition in enumerate(definitions or ()):
        function = definition.function
        if function.name in tools:
            param = f"tools[{index}].function.name"
            raise InvalidRequest(f"{param}: there are two tools of this name.", param=param)
        tools[function.name] = Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters or {},
            strict=bool(function.strict),
        )
    return tuple(tools.values())


def may_call(choice: str | dict[str, Any] | None, tools: Sequence[Tool]) -> bool:
    """Return whether the model may call tools.

    Raises InvalidRequest for a choice that forces a call: without structured output nothing could guarantee it.
    """
    if choice in (None, "auto"):
        return True
    if choice == "none":
        return False
    if isinstance(choice, str) and choice != "required":
        raise InvalidRequest("tool_choice must be none, auto, required or name a function.", param="tool_choice")
    if not tools:
        raise InvalidRequest("tool_choice forces a call, but there are no tools.", param="tool_choice")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if choice.get("type") != "function" or not isinstance(name, str):
            raise InvalidRequest(
                'tool_choice must look like {"type": "function", "function": {"name": …}}.', param="tool_choice"
            )
        if all(tool.name != name for tool in tools):
            raise InvalidRequest("tool_choice names a tool that is not declared.", param="tool_choice")
    raise InvalidRequest(
        "tool_choice: forcing a call needs structured output, which is not in this build; use auto.",
        param="tool_choice",
    )
