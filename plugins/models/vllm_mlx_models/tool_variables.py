"""How a template gets to know the tools: the names it reads them under, and the shape it can cope with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from .messages import Message
from .template import ChatTemplate, TemplateRefusal
from .tool_schemas import completed

_OTHER_NAMES = ("xml_tools", "available_tools", "functions")
"""What templates call the tools that do not call them ``tools``."""
_TOOLS_OF_MESSAGE = re.compile(r"""\w(?:\.tools\b|\[['"]tools['"]\])""")

ToolDicts = Sequence[Mapping[str, Any]]


class ToolList(list[Any]):
    """The tools. Where a template treats them as text, they are JSON."""

    def __str__(self) -> str:
        return json.dumps(list(self), ensure_ascii=False)

    def __radd__(self, other: object) -> str:
        return f"{other}{self}"


class TemplateWithTools:
    """Renders messages and tools through one template. Any thread; does not mutate, but the template may."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        names = [name for name in _OTHER_NAMES if name in template.variables]
        if "tools" in template.variables:
            names = [name for name in names if name == "xml_tools"]  # the others are its own names for ``tools``
        self._names = ("tools", *names)
        self._in_message = "tools" not in template.variables and bool(_TOOLS_OF_MESSAGE.search(template.source))

    def render(self, messages: list[Message], tools: ToolDicts | None, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises whatever the template provokes.

        A template that fails is tried again with what it may have missed: a list of tools, be it empty, or
        what a schema may leave out.
        """
        if self._in_message and tools:
            messages = _with_tools_in_system_message(messages, tools)
        try:
            return self._render(messages, tools, variables)
        except TemplateRefusal:
            raise
        except Exception:
            return self._render(messages, [_completed(tool) for tool in tools or ()], variables)

    def _render(self, messages: list[Message], tools: ToolDicts | None, variables: Mapping[str, Any]) -> str:
        given = None if tools is None else ToolList(tools)
        named: dict[str, Any] = dict.fromkeys(self._names if given is not None else ("tools",), given)
        if "functions" in self._names:  # templates of that time also expect to be told when it is
            named["datetime"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        return self._template.render(named | dict(variables) | {"messages": messages})


def _with_tools_in_system_message(messages: list[Message], tools: ToolDicts) -> list[Message]:
    listed = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if messages[0]["role"] == "system":
        return [{**messages[0], "tools": listed}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": listed}, *messages]


def _completed(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a tool with a schema that leaves out nothing."""
    function = tool["function"]
    parameters = {"properties": {}, **completed(function["parameters"])}
    return {**tool, "function": {**function, "parameters": parameters}}
