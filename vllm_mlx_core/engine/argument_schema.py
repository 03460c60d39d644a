"""Whether arguments fit a tool's JSON Schema, told in bounded time and without a network.

jsonschema is imported with the first schema that is used: most requests have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, cast

from .step_budget import VALUES_PER_STEP, OutOfSteps, bounded, count_values, spend

_DRAFTS = {
    "draft-03": "Draft3Validator",
    "draft-04": "Draft4Validator",
    "draft-06": "Draft6Validator",
    "draft-07": "Draft7Validator",
    "2019-09": "Draft201909Validator",
}
_LATEST = "Draft202012Validator"

_LEFT_OUT = frozenset({"$schema", "pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems"})
"""Not checked. The time that a regular expression takes has no bound, and schemas mean JavaScript's, not Python's;
jsonschema walks a schema again and again for the last two. ``$schema`` is read once and could switch the bounds off."""
_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies"})
"""Keywords whose members are named by the client, so that a name is no keyword."""
_VALUES = frozenset({"enum", "const", "default", "examples", "required", "type"})
"""Keywords that hold values and no schemas."""


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "a string"


class _List(list[Any]):
    def __repr__(self) -> str:
        return "a list"


class _Object(dict[str, Any]):
    def __repr__(self) -> str:
        return "an object"


def unspoken(value: Any) -> Any:
    """Return an equal value whose ``repr`` is short: jsonschema writes it into each of its messages.

    Raises OutOfSteps if it is too large to be checked; must be called within ``bounded``.
    """
    spend(count_values(value) // VALUES_PER_STEP)
    return _unspoken(value)


def _unspoken(value: Any) -> Any:
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, Mapping):
        return _Object((name, _unspoken(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return _List(map(_unspoken, value))
    return value


class Violation(NamedTuple):
    """Where arguments break a schema: the JSON path of the value, and the schema's keyword. No values."""

    path: str
    keyword: str


class ArgumentSchema:
    """The schema of one tool's arguments. Any thread. Making one never raises: in a broken one no fault is found."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.root: Any = {}
        """The schema as it is checked."""
        self._validator: Any = None
        self._resolver: Any = None
        with suppress(Exception):  # RecursionError is one
            self.root = _checkable(schema)
            self._validator, self._resolver = _validator(_class_name(schema), self.root)

    def violation(self, arguments: Any) -> Violation | None:
        """Return the first violation, or None if there is none or it cannot be told. Never raises."""
        if self._validator is None:
            return None
        try:
            with bounded():
                for error in self._validator.iter_errors(unspoken(arguments)):
                    return Violation(error.json_path, str(error.validator or "false"))
        except Exception:
            return None
        return None

    def accepts(self, value: Any, part: Any) -> bool:
        """Return whether a value fits a part of the schema, as far as can be told.

        The value should be ``unspoken``. Raises OutOfSteps; must be called within ``bounded``.
        """
        if self._validator is None:
            return False
        spend()
        try:
            return bool(self._validator.evolve(schema=part).is_valid(value))
        except OutOfSteps:
            raise
        except Exception:
            self._spend_search()
            return False

    def resolve(self, reference: str) -> Any:
        """Return the part of the schema that a reference points at, or None if that is elsewhere or nowhere.

        Raises OutOfSteps; must be called within ``bounded``.
        """
        if self._resolver is None:
            return None
        spend(_segments(reference))
        try:
            return self._resolver.lookup(reference).contents
        except Exception:
            self._spend_search()
            return None

    def _spend_search(self) -> None:
        """Pay for a reference to nowhere: all of the schema was searched for it."""
        spend(count_values(self.root) // VALUES_PER_STEP)


def _checkable(schema: Any) -> Any:
    """Return a copy of a schema without what is not checked, ``unspoken``: messages quote schemas as well."""
    if isinstance(schema, list | tuple):
        return _List(map(_checkable, schema))
    if not isinstance(schema, Mapping):
        return _unspoken(schema)
    copy = _Object()
    for keyword, value in schema.items():
        if keyword in _LEFT_OUT or (keyword == "additionalProperties" and "patternProperties" in schema):
            continue
        if keyword in _BY_NAME and isinstance(value, Mapping):
            copy[keyword] = _Object((name, _checkable(each)) for name, each in value.items())
        else:
            copy[keyword] = _unspoken(value) if keyword in _VALUES else _checkable(value)
    return copy


def _class_name(schema: Mapping[str, Any]) -> str:
    dialect = str(schema.get("$schema", ""))
    return next((name for draft, name in _DRAFTS.items() if draft in dialect), _LATEST)


def _validator(name: str, schema: Any) -> tuple[Any, Any]:
    """Return a validator of the class of this name, and what resolves references within the schema."""
    from referencing import Registry
    from referencing.jsonschema import specification_with

    validator_class = _validator_class(name)
    resource = specification_with(validator_class.META_SCHEMA["$schema"]).create_resource(schema)
    registry: Any = Registry()  # jsonschema's own registry fetches what it does not hold
    with suppress(Exception):  # names and ids are found once, and not again for each reference
        registry = registry.with_resource(resource.id() or "", resource).crawl()
    return validator_class(schema, registry=registry), registry.resolver_with_root(resource)


@cache
def _validator_class(name: str) -> Any:
    """Return jsonschema's class of this name, with keywords that count."""
    from jsonschema import validators

    base, extend = getattr(validators, name), cast("Any", validators.extend)
    return extend(base, {keyword: _counted(keyword, check) for keyword, check in base.VALIDATORS.items()})


def _counted(keyword: str, check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any] | None]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        steps = 1 + (_members(value) + _members(instance)) // VALUES_PER_STEP
        if keyword in ("enum", "const"):
            steps += count_values(value) // VALUES_PER_STEP
        elif keyword == "uniqueItems" and isinstance(instance, list):
            steps += count_values(instance) ** 2 // 64  # it may compare every two items
        elif keyword == "$ref" and isinstance(value, str):
            steps += _segments(value)
        spend(steps)
        return check(validator, value, instance, schema)

    return counted


def _members(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _segments(reference: str) -> int:
    """Return the steps that it takes to follow a reference."""
    return reference.count("/") // VALUES_PER_STEP
