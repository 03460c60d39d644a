"""Whether arguments fit a tool's JSON Schema, told in bounded time and without a network.

jsonschema is imported with the first schema that is used: most requests have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, cast

MAX_STEPS = 5_000
"""Most that one check or repair may do, in keywords of the schema that are looked at: some 50 ms."""

_DRAFTS = {
    "draft-04": "Draft4Validator",
    "draft-06": "Draft6Validator",
    "draft-07": "Draft7Validator",
    "2019-09": "Draft201909Validator",
}
_LATEST = "Draft202012Validator"

_LEFT_OUT = frozenset({"$schema", "pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems"})
"""Not checked. The time that a regular expression takes has no bound, and schemas mean JavaScript's, not Python's;
jsonschema walks a schema again and again for the last two. ``$schema`` is read once and could switch the bounds off."""
_BY_NAME = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"enum", "const", "default", "examples", "required", "type"})

_steps: ContextVar[list[int]] = ContextVar("steps")


_LOOPS = frozenset({"additionalProperties", "propertyNames", "contains", "required", "dependentRequired"})
"""Keywords that look at every member of what they say, or of the value, without looking at other keywords."""
_COMPARES = frozenset({"enum", "const"})
_PER_STEP = 16
"""So many members can be looked at, or values compared, in the time that a keyword takes."""


class OutOfSteps(Exception):
    """A check or a repair took more than ``MAX_STEPS``."""


@contextmanager
def bounded() -> Iterator[None]:
    """Let what is inside take ``MAX_STEPS`` together."""
    token = _steps.set([MAX_STEPS])
    try:
        yield
    finally:
        _steps.reset(token)


def spend(steps: int = 1) -> None:
    """Take steps of those that are left. Raises OutOfSteps, and LookupError outside ``bounded``."""
    left = _steps.get()
    left[0] -= steps
    if left[0] < 0:
        raise OutOfSteps


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
    spend(_size(value) // _PER_STEP)
    return _unspoken(value)


def _unspoken(value: Any) -> Any:
    if isinstance(value, str):
        return _Text(value)
    if isinstance(value, dict):
        return _Object((name, _unspoken(each)) for name, each in value.items())
    if isinstance(value, list):
        return _List(map(_unspoken, value))
    return value


class Violation(NamedTuple):
    """Where arguments break a schema: the JSON path of the value, and the schema's keyword. No values."""

    path: str
    keyword: str


class ArgumentSchema:
    """The schema of one tool's arguments. Any thread. Nothing here raises: what cannot be checked is taken as it is."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.root: Any = {}
        """The schema as it is checked."""
        self._validator: Any = None
        try:
            self.root = _checkable(schema)
            from referencing import Registry

            nothing: Any = Registry()  # jsonschema's own registry fetches what it does not hold
            self._validator = _validator_class(_class_name(schema))(self.root, registry=nothing)
        except Exception:  # RecursionError is one
            self._validator = None

    def violation(self, arguments: Any) -> Violation | None:
        """Return the first violation, or None if there is none or it cannot be told."""
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
        try:
            return bool(self._validator.evolve(schema=part).is_valid(value))
        except OutOfSteps:
            raise
        except Exception:
            return False


def _checkable(schema: Any) -> Any:
    """Return a copy of a schema without what is not checked."""
    if isinstance(schema, list | tuple):
        return [_checkable(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _LEFT_OUT or (keyword == "additionalProperties" and "patternProperties" in schema):
            continue
        if keyword in _BY_NAME and isinstance(value, Mapping):
            copy[keyword] = {name: _checkable(each) for name, each in value.items()}
        else:
            copy[keyword] = _unspoken(value) if keyword in _VALUES else _checkable(value)
    return copy


def _class_name(schema: Mapping[str, Any]) -> str:
    dialect = str(schema.get("$schema", ""))
    return next((name for draft, name in _DRAFTS.items() if draft in dialect), _LATEST)


@cache
def _validator_class(name: str) -> Any:
    """Return jsonschema's class of this name, with keywords that count."""
    from jsonschema import validators

    base, extend = getattr(validators, name), cast("Any", validators.extend)
    return extend(base, {keyword: _counted(keyword, check) for keyword, check in base.VALIDATORS.items()})


def _counted(keyword: str, check: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any] | None]:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any] | None:
        steps = 1
        if keyword in _LOOPS:
            steps += sum(len(each) for each in (value, instance) if isinstance(each, list | dict)) // _PER_STEP
        elif keyword in _COMPARES:
            steps += _size(value) // _PER_STEP
        elif keyword == "uniqueItems" and isinstance(instance, list):
            steps += _size(instance) ** 2 // 64  # it may compare every two items
        spend(steps)
        return check(validator, value, instance, schema)

    return counted


def _size(value: Any) -> int:
    """Return how many values there are in a value, or enough of them to be too many for any check."""
    waiting = [value]
    for each in waiting:  # which grows meanwhile
        if len(waiting) > MAX_STEPS * _PER_STEP:
            break
        waiting += each if isinstance(each, list) else each.values() if isinstance(each, dict) else ()
    return len(waiting)
