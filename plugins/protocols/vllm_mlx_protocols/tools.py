"""Which tools the model is offered, and whether it may or must call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mlx_core.api import InvalidRequest, Tool

from .http import encode
from .limits import MAX_SCHEMA_BYTES


class ToolUse(NamedTuple):
    """What a request's tools and its choice among them come to.

    Tools that must not be called are not offered: a model that sees them writes calls to them as text.
    """

    offered: Sequence[Tool]
    allowed: bool = True
    required: bool = False
    parallel: bool = True


def unique(tools: Iterable[tuple[str, Tool]]) -> tuple[Tool, ...]:
    """Return the tools, each of which comes with the path of its name. Raises InvalidRequest if two have one name."""
    found: dict[str, Tool] = {}
    for param, tool in tools:
        if tool.name in found:
            raise InvalidRequest(f"{param}: there are two tools of this name.", param=param)
        found[tool.name] = tool
    return tuple(found.values())


def checked_schema(schema: Mapping[str, Any] | None, param: str) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments, empty if there is none. Raises InvalidRequest if it is too large."""
    if schema is not None and len(encode(schema)) > MAX_SCHEMA_BYTES:
        raise InvalidRequest(f"{param} is larger than {MAX_SCHEMA_BYTES} bytes.", param=param)
    return schema or {}
