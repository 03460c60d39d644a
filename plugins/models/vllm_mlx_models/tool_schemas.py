"""JSON Schemas of tools, as templates can read them: they take less than what clients send is allowed to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords that hold schemas by name."""
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SINGLE = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_VALUES = frozenset({"default", "const"})
"""Keywords whose null says something."""


def without_nulls(schema: Any) -> Any:
    """Return a copy without keywords that are null: templates print them as None. Null as a value stays."""
    if not isinstance(schema, Mapping):
        return schema
    said = {key: value for key, value in schema.items() if value is not None or key in _VALUES}
    return _within(said, without_nulls)


def completed(schema: Any) -> Any:
    """Return a copy in the form the plainest templates expect.

    Every parameter has a description, every object says what else it holds, a type list does not name null, and a
    schema is an object: true, false and a list of item schemas become one.
    """
    if not isinstance(schema, Mapping):
        return {"anyOf": [completed(each) for each in schema]} if isinstance(schema, list) else {}
    done: dict[str, Any] = _within(schema, completed)
    kind = done.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        done["type"] = kinds[0] if len(kinds) == 1 else kinds
    properties = done.get("properties")
    for each in properties.values() if isinstance(properties, dict) else ():
        each.setdefault("description", "")
        if each.get("type") == "object":
            each.setdefault("additionalProperties", {})
    return done


def _within(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a copy with every schema that this one holds changed."""
    done = dict(schema)
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            done[key] = {name: change(each) for name, each in value.items()}
        elif key in _LISTS and isinstance(value, list):
            done[key] = [change(each) for each in value]
        elif key in _SINGLE:
            done[key] = change(value)
    return done
