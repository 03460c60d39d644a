"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from vllm_mlx_core.api import InvalidRequest, Tool
from vllm_mlx_protocols import limits
from vllm_mlx_protocols.reading import Fields, read
from vllm_mlx_protocols.tools import checked_schema, unique

CUSTOM_INPUT = "input"
"""The one argument of the function that a custom tool becomes."""


class FunctionTool(Fields):
    """A function; ``parameters`` is a JSON Schema."""

    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS, pattern=limits.TOOL_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomFormat(Fields):
    """What the input of a custom tool looks like."""

    type: str
    syntax: str | None = None
    definition: str | None = None


class CustomTool(Fields):
    """A tool that takes a text."""

    name: Annotated[str, Field(min_length=1, max_length=limits.MAX_NAME_CHARS, pattern=limits.TOOL_NAME)]
    description: str | None = None
    format: CustomFormat | None = None


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What the model is offered: ``custom`` names the tools that take a text, ``given`` is what the client wrote."""

    tools: tuple[Tool, ...] = ()
    custom: frozenset[str] = frozenset()
    given: tuple[Mapping[str, Any], ...] = ()
    allowed: bool = True
    required: bool = False


def to_toolbox(definitions: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any] | None) -> Toolbox:
    """Return what the model is offered. Pure. Raises InvalidRequest naming the field.

    Tools that OpenAI itself would run are left out: agents send them with every request, whatever the server has.
    """
    tools: list[tuple[str, Tool]] = []
    custom: set[str] = set()
    given: list[Mapping[str, Any]] = []
    for index, definition in enumerate(definitions or ()):
        where = f"tools[{index}]"
        match definition.get("type"):
            case "function":
                tool = _function(read(FunctionTool, definition, where), where)
            case "custom":
                tool = _custom(read(CustomTool, definition, where))
                custom.add(tool.name)
            case str():
                continue
            case _:
                raise InvalidRequest(f"{where}.type is required: a string.", param=f"{where}.type")
        tools.append((f"{where}.name", tool))
        given.append(definition)
    return _choose(Toolbox(unique(tools), frozenset(custom), tuple(given)), choice)


def _function(tool: FunctionTool, where: str) -> Tool:
    schema = checked_schema(tool.parameters, f"{where}.parameters")
    return Tool(tool.name, tool.description, schema, bool(tool.strict))


def _custom(tool: CustomTool) -> Tool:
    """Return the function. A grammar is only shown to the model: nothing constrains its output."""
    description = tool.description or ""
    if tool.format is not None and tool.format.definition:
        syntax = tool.format.syntax or "given"
        description += f"\n\nThe input must follow this {syntax} grammar:\n{tool.format.definition}"
    schema = {"type": "object", "properties": {CUSTOM_INPUT: {"type": "string"}}, "required": [CUSTOM_INPUT]}
    return Tool(tool.name, description.strip() or None, schema)


def _choose(box: Toolbox, choice: str | Mapping[str, Any] | None) -> Toolbox:
    if choice in (None, "auto"):
        return box
    if choice == "none":
        return replace(box, tools=(), allowed=False)  # a model that sees tools it must not call writes calls as text
    if choice == "required":
        return _required(box)
    if isinstance(choice, str):
        raise InvalidRequest("tool_choice must be none, auto, required or an object.", param="tool_choice")
    match choice.get("type"), choice.get("name"):
        case ("function" | "custom") as kind, str(name):
            return _required(_only(box, {(kind, name)}, "tool_choice.name"))
        case "allowed_tools", _:
            return _allowed(box, choice)
        case "function" | "custom", _:
            raise InvalidRequest("tool_choice.name is required.", param="tool_choice.name")
    raise InvalidRequest(
        "tool_choice.type must be function, custom or allowed_tools: this server runs no tools itself.",
        param="tool_choice.type",
    )


def _allowed(box: Toolbox, choice: Mapping[str, Any]) -> Toolbox:
    mode, listed = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest("tool_choice.mode must be auto or required.", param="tool_choice.mode")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise InvalidRequest("tool_choice.tools must be a list of tools.", param="tool_choice.tools")
    names = {(each["type"], each["name"]) for each in listed if _is_ours(each)}
    box = _only(box, names, "tool_choice.tools")
    return _required(box) if mode == "required" else box


def _is_ours(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") in ("function", "custom") and isinstance(tool.get("name"), str)


def _only(box: Toolbox, names: set[tuple[str, str]], param: str) -> Toolbox:
    declared = {("custom" if tool.name in box.custom else "function", tool.name) for tool in box.tools}
    if not names <= declared:
        raise InvalidRequest(f"{param} names a tool that is not declared in tools.", param=param)
    chosen = {name for _, name in names}
    return replace(box, tools=tuple(tool for tool in box.tools if tool.name in chosen))


def _required(box: Toolbox) -> Toolbox:
    if not box.tools:
        raise InvalidRequest("tool_choice forces a call, but there are no tools.", param="tool_choice")
    return replace(box, required=True)
