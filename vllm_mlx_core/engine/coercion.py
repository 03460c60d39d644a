"""Arguments with obviously mistyped scalars, put right by the schema: ``"42"`` where an integer belongs, and so on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .argument_schema import ArgumentSchema, unspoken
from .step_budget import CHARACTERS_PER_STEP, bounded, spend

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}(\.0+)?")
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "True": True, "false": False, "False": False}
_NULLS = frozenset({"null", "None"})
_UNCHANGED: Any = object()


def repaired(arguments: str, schema: ArgumentSchema) -> str:
    """Return JSON arguments with mistyped scalars coerced, or ``arguments`` itself if nothing is to change. Pure.

    Looks into objects, arrays and references within the schema. What has no obvious reading stays. Never raises.
    """
    try:
        with bounded():
            value = unspoken(json.loads(arguments))
            better = _Coercion(schema).coerce(value, schema.root)
        if better is value:
            return arguments
        text = json.dumps(better, ensure_ascii=False, allow_nan=False)
        text.encode()
    except Exception:  # OutOfSteps, RecursionError, numbers with thousands of digits, half of a surrogate pair
        return arguments
    return text


class _Coercion:
    def __init__(self, schema: ArgumentSchema) -> None:
        self._schema = schema

    def coerce(self, value: Any, part: Any) -> Any:
        """Return the value that ``part`` of the schema wants, or ``value`` itself."""
        spend()
        if not isinstance(part, Mapping):
            return value
        if isinstance(reference := part.get("$ref"), str):
            value = self.coerce(value, self._schema.resolve(reference))
        for each in _list(part.get("allOf")):
            value = self.coerce(value, each)
        for keyword in ("anyOf", "oneOf"):
            if branches := _list(part.get(keyword)):
                value = self._one_of(value, branches)
        if types := _types(part):
            value = _typed(value, types)
        if isinstance(allowed := part.get("enum", [part["const"]] if "const" in part else None), list):
            value = _member(value, allowed)
        if isinstance(value, dict):
            return self._object(value, part)
        if isinstance(value, list):
            return self._array(value, part)
        return value

    def _one_of(self, value: Any, branches: Sequence[Any]) -> Any:
        if any(self._schema.accepts(value, branch) for branch in branches):
            return value
        for branch in branches:
            better = self.coerce(value, branch)
            if better is not value and self._schema.accepts(better, branch):
                return better
        return value

    def _object(self, value: dict[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
        properties = part.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        others = part.get("additionalProperties")
        better = {name: self.coerce(each, known.get(name, others)) for name, each in value.items()}
        return better if any(better[name] is not each for name, each in value.items()) else value

    def _array(self, value: list[Any], part: Mapping[str, Any]) -> list[Any]:
        items = part.get("items")
        first = _list(part.get("prefixItems")) or _list(items)  # a list of items is how older drafts say it
        rest = part.get("additionalItems") if isinstance(items, list) else items
        better = [self.coerce(each, first[i] if i < len(first) else rest) for i, each in enumerate(value)]
        return better if any(new is not old for new, old in zip(better, value, strict=True)) else value


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _types(part: Mapping[str, Any]) -> list[str]:
    types = part.get("type")
    return [types] if isinstance(types, str) else [each for each in _list(types) if isinstance(each, str)]


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _typed(value: Any, types: Sequence[str]) -> Any:
    """Return ``value`` as the first of ``types`` that it can be read as, or ``value`` itself."""
    actual = _type(value)
    if actual in types or (actual == "integer" and "number" in types):
        return value
    return next((better for better in _readings(value, types) if better is not _UNCHANGED), value)


def _readings(value: Any, types: Sequence[str]) -> Iterator[Any]:
    if isinstance(value, str):
        text = value.strip()
        for type_ in types:
            spend(len(text) // CHARACTERS_PER_STEP)
            yield _from_text(text, type_)
    elif isinstance(value, float) and "integer" in types and value.is_integer():
        yield int(value)
    elif isinstance(value, bool | int | float) and "string" in types:
        yield json.dumps(value)


def _from_text(text: str, type_: str) -> Any:
    match type_:
        case "integer" if _INTEGER.fullmatch(text):
            return int(text.partition(".")[0])
        case "number" if _INTEGER.fullmatch(text) and "." not in text:
            return int(text)
        case "number" if _NUMBER.fullmatch(text):
            return number if math.isfinite(number := float(text)) else _UNCHANGED
        case "boolean" if text in _WORDS:
            return _WORDS[text]
        case "null" if text in _NULLS:
            return None
        case "object" | "array" if text[:1] == ("{" if type_ == "object" else "["):
            try:
                return json.loads(text)
            except ValueError:
                return _UNCHANGED
    return _UNCHANGED


def _member(value: Any, allowed: Sequence[Any]) -> Any:
    """Return the allowed scalar that a scalar is written like, or ``value`` itself. Raises OutOfSteps."""
    if isinstance(value, list | dict):
        return value
    spend(len(allowed))
    if any(_type(each) == _type(value) and each == value for each in allowed):
        return value
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    for each in allowed:
        if not isinstance(each, list | dict) and (each if isinstance(each, str) else json.dumps(each)) == text:
            return each
    return value
