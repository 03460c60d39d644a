"""What a JSON Schema says of a value that a model wrote as plain text, without a type.

Formats such as ``<parameter=count>5</parameter>`` do not say whether ``5`` is a number or a string; the schema of the
declared tool does. Schemas come from clients: anything in them that makes no sense says nothing.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from .json_scan import JSONScanner

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_WHOLE = re.compile(r"([+-]?[0-9]{1,400})\.0*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False}


class Schema:
    """One schema within a document. Does not mutate it."""

    def __init__(self, node: Any, root: Any = None) -> None:
        self._node = node
        self._root = node if root is None else root

    @cached_property
    def types(self) -> frozenset[str]:
        """The JSON types a value may have; empty if the schema does not say."""
        types, _ = self._gather()
        return types

    @cached_property
    def choices(self) -> Sequence[Any] | None:
        """The values of ``enum`` or ``const``, or None."""
        _, choices = self._gather()
        return choices

    @property
    def is_text(self) -> bool:
        """Whether every text is a value as it stands."""
        return self.types == {"string"}

    def member(self, name: str) -> Schema:
        """Return the schema of the member ``name`` of an object; an empty one if there is none."""
        fallback: Any = {}
        for node in self._alternatives:
            properties = node.get("properties")
            if isinstance(properties, Mapping) and name in properties:
                return Schema(properties[name], self._root)
            if isinstance(node.get("additionalProperties"), Mapping):
                fallback = node["additionalProperties"]
        return Schema(fallback, self._root)

    @property
    def items(self) -> Schema:
        """The schema of the elements of an array; an empty one if it does not say."""
        for node in self._alternatives:
            if isinstance(node.get("items"), Mapping):
                return Schema(node["items"], self._root)
        return Schema({}, self._root)

    @cached_property
    def member_names(self) -> frozenset[str]:
        """The names of an object's declared members."""
        names: set[str] = set()
        for node in self._alternatives:
            properties = node.get("properties")
            if isinstance(properties, Mapping):
                names.update(map(str, properties))
        return frozenset(names)

    def to_json(self, text: str) -> str:
        """Return the JSON of the value that ``text`` stands for.

        The schema's types are tried, the plainest reading first and string last. What fits none stays a string.
        Without a schema, objects and arrays are decoded, and the rest are strings.
        """
        value = self._choice(text)
        if value is not _NOTHING:
            return json_text(value)
        word = text.strip()
        types = self.types or {"object", "array"}
        if "null" in types and word in ("null", "None") and not self.is_text:
            return "null"
        if "boolean" in types and word.lower() in _WORDS:
            return json_text(_WORDS[word.lower()])
        if "integer" in types or "number" in types:
            number = _number(word, whole="number" not in types)
            if number is not None:
                return number
        if word[:1] in ("{", "[") and ("object" if word[0] == "{" else "array") in types:
            decoded = _container(word)
            if decoded is not None:
                return decoded
        return json_text(text)

    def _choice(self, text: str) -> Any:
        """Return the choice that ``text`` names, or _NOTHING."""
        for choice in self.choices or ():
            if isinstance(choice, str) and choice == text:
                return choice
        for choice in self.choices or ():
            if not isinstance(choice, str | Mapping | list) and json_text(choice).lower() == text.strip().lower():
                return choice
        return _NOTHING

    def _gather(self) -> tuple[frozenset[str], Sequence[Any] | None]:
        types: set[str] = set()
        choices: list[Any] | None = None
        for node in self._alternatives:
            said = node.get("type")
            types.update(t for t in (said if isinstance(said, list) else [said]) if isinstance(t, str) and t in _TYPES)
            if node.get("nullable") is True:
                types.add("null")
            values = [node["const"]] if "const" in node else node.get("enum")
            values = values if isinstance(values, list) else None
            if values is not None:
                choices = [*(choices or ()), *values]
                if said is None:
                    types.update(map(_type_of, values))
            elif said is None and isinstance(node.get("properties"), Mapping):
                types.add("object")
            elif said is None and isinstance(node.get("items"), Mapping):
                types.add("array")
        return frozenset(types), choices

    @cached_property
    def _alternatives(self) -> Sequence[Mapping[str, Any]]:
        """The schema and every schema that it refers to or combines, each once."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = [self._node]
        while waiting:
            node = waiting.pop(0)
            if not isinstance(node, Mapping) or id(node) in found:
                continue
            found[id(node)] = node
            if isinstance(node.get("$ref"), str):
                waiting.append(self._resolve(node["$ref"]))
            for keyword in ("anyOf", "oneOf", "allOf"):
                if isinstance(node.get(keyword), list):
                    waiting += node[keyword]
        return list(found.values())

    def _resolve(self, reference: str) -> Any:
        """Return what a reference within the document (``#/$defs/Place``) points at, or None."""
        if not reference.startswith("#"):
            return None
        node = self._root
        for part in filter(None, reference[1:].split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node


_NOTHING = object()


def json_text(value: Any) -> str:
    """Return ``value`` as JSON, with Unicode as it is; half a surrogate pair, which no UTF-8 can carry, is U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _type_of(value: Any) -> str:
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


def _number(word: str, *, whole: bool) -> str | None:
    """Return the JSON of a number, or None if ``word`` is none, or not a whole one where only such fit."""
    if _INTEGER.fullmatch(word):
        return str(int(word))
    if whole:
        match = _WHOLE.fullmatch(word)
        return str(int(match.group(1))) if match else None
    if not _NUMBER.fullmatch(word):
        return None
    value = float(word)
    return json.dumps(value) if math.isfinite(value) else None


def _container(word: str) -> str | None:
    """Return the JSON of an object or array, which may be written with Python's quotes; None if it is neither."""
    scanner = JSONScanner()
    end = scanner.feed(word)
    if scanner.done and end == len(word):
        return scanner.take()
    try:
        value = ast.literal_eval(word)
        return json_text(value) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
