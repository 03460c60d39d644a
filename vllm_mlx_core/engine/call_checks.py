"""Finished tool calls against the schemas their tools were declared with."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vllm_mlx_core.api import ToolCallArguments, ToolCallEnd, ToolCallStart

from .argument_schema import ArgumentSchema, Violation
from .coercion import repaired

if TYPE_CHECKING:
    from vllm_mlx_core.api import Event, Tool

MAX_SHOWN = 200
"""Longest name or path in the log: a model may have made it up."""

UNDECLARED = Violation("$", "no such tool")

log = logging.getLogger(__name__)


class ToolSchemas:
    """The schemas of the tools of one request, each made ready when it is first needed."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._ready: dict[str, ArgumentSchema] = {}

    def get(self, name: str) -> ArgumentSchema | None:
        """Return the schema of the tool called ``name``, or None if there is no such tool."""
        if name not in self._ready and name in self._tools:
            self._ready[name] = ArgumentSchema(self._tools[name].parameters)
        return self._ready.get(name)


class CallChecks:
    """Checks, and perhaps repairs, the calls of one completion on their way to the client.

    With ``validates`` a call that breaks its schema, or names no declared tool, is counted, and logged without its
    arguments, which may be secret; it goes on as it is. With ``repairs`` the arguments of a call wait for its end and
    are then sent in one piece, mistyped scalars coerced. Never raises.
    """

    def __init__(self, schemas: ToolSchemas, *, validates: bool, repairs: bool) -> None:
        self.num_invalid = 0
        self._schemas = schemas
        self._validates = validates
        self._repairs = repairs
        self._name: str | None = None  # of the open call
        self._index = 0
        self._arguments: list[str] = []

    def feed(self, event: Event) -> Iterable[Event]:
        """Take the next event of an answer and return what goes on to the client now. Mutates."""
        match event:
            case ToolCallStart(index, _, name):
                held = self.finish()
                self._name, self._index = name, index
                return (*held, event)
            case ToolCallArguments(_, text):
                self._arguments.append(text)
                return () if self._repairs else (event,)
            case ToolCallEnd():
                return (*self._end(), event)
        return (*self.finish(), event) if self._name is not None else (event,)

    def finish(self) -> Iterable[Event]:
        """Return what is held of a call that never ended."""
        held = "".join(self._arguments) if self._repairs else ""
        self._name = None
        self._arguments.clear()
        return (ToolCallArguments(self._index, held),) if held else ()

    def _end(self) -> Iterable[Event]:
        name, arguments = self._name or "", "".join(self._arguments)
        self._name = None
        self._arguments.clear()
        schema = self._schemas.get(name)
        if self._repairs and schema is not None and arguments:
            arguments = repaired(arguments, schema)
        if self._validates and (violation := _violation(arguments, schema)) is not None:
            self.num_invalid += 1
            log.warning(
                "A call of %s does not fit: %s at %s",
                repr(name[:MAX_SHOWN]),
                violation.keyword,
                repr(violation.path[:MAX_SHOWN]),
            )
        return (ToolCallArguments(self._index, arguments),) if self._repairs and arguments else ()


def _violation(arguments: str, schema: ArgumentSchema | None) -> Violation | None:
    if schema is None:
        return UNDECLARED
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):  # a number with thousands of digits, say
        return None
    return schema.violation(value)
