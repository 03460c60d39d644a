"""What a JSON Schema says of a value that a model wrote as plain text, without a type.

Formats such as ``<parameter=count>5</parameter>`` do not say whether ``5`` is a number or a string; the schema of the
declared tool does. Schemas come from clients: anything in them that makes no sense says nothing.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from json.encoder import encode_basestring
from typing import Any
from urllib.parse import unquote

from .json_scan import JSONScanner

_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_UNTYPED = frozenset({"object", "array", "string"})
"""What text without a type may be."""
_COMBINED = ("anyOf", "oneOf", "allOf")
_DEEPEST = 64  # schemas within each other

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_WHOLE = re.compile(r"([+-]?[0-9]{1,400})\.0*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INDEX = re.compile(r"[0-9]{1,6}")
_WORDS = {"true": True, "false": False}
_NOTHING = object()


class Schema:
    """One schema within a document, which must not change. Everything it says is found once, when it is asked."""

    def __init__(self, node: Any, root: Any = None) -> None:
        self._node = node
        self._root = node if root is None else root
        self._members: dict[str, Schema] = {}

    @cached_property
    def types(self) -> frozenset[str]:
        """The JSON types a value may have; empty if the schema does not say."""
        return self._types(self._node, {})

    @cached_property
    def choices(self) -> Sequence[Any]:
        """The values of ``enum`` and ``const``."""
        choices: list[Any] = []
        for node in self._alternatives:
            choices += _choices(node)
        return choices

    @property
    def is_text(self) -> bool:
        """Whether every text is a value as it stands."""
        return self.types == {"string"}

    @property
    def is_nullable_text(self) -> bool:
        """Whether every text is a value as it stands, but for the word ``null``."""
        return self.types == {"string", "null"}

    def member(self, name: str) -> Schema:
        """Return the schema of the member ``name`` of an object; an empty one if there is none."""
        if name not in self._members:
            declared, others = [], []
            for node in self._alternatives:
                properties = node.get("properties")
                if isinstance(properties, Mapping) and name in properties:
                    declared.append(properties[name])
                others.append(node.get("additionalProperties"))
            self._members[name] = self._any_of(declared or others)
        return self._members[name]

    @cached_property
    def items(self) -> Schema:
        """The schema of the elements of an array; an empty one if it does not say."""
        return self._any_of([node.get("items") for node in self._alternatives])

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
        if self.is_text:
            return json_text(text)
        choice = self._choice(text)
        if choice is not _NOTHING:
            return json_text(choice)
        word = text.strip()
        types = self.types or _UNTYPED
        if "null" in types and word in ("null", "None"):
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

    def json_of(self, text: str) -> str:
        """Return ``text``, a value that a model wrote as JSON. What is no JSON is read like plain text.

        So is what must be a string by the schema and is none.
        """
        word = text.strip()
        decoded = _scan(word)
        if decoded is None or (self.is_text and not decoded.startswith('"')):
            return self.to_json(text)
        return decoded

    def _choice(self, text: str) -> Any:
        """Return the choice that ``text`` names, or _NOTHING."""
        if text in (choice for choice in self.choices if isinstance(choice, str)):
            return text
        word = text.strip().lower()
        for choice in self.choices:
            is_word = choice is None or isinstance(choice, bool | int)
            is_number = isinstance(choice, float) and math.isfinite(choice)
            if (is_word or is_number) and json.dumps(choice) == word:
                return choice
        return _NOTHING

    def _types(self, node: Any, found: dict[int, frozenset[str]], depth: int = 0) -> frozenset[str]:
        """Return the types that one of the schemas in the document allows; empty if it does not say.

        ``found`` has the answers so far; within a schema that refers to itself, an empty one. Mutates it.
        """
        if not isinstance(node, Mapping) or depth > _DEEPEST:
            return frozenset()
        if id(node) in found:
            return found[id(node)]
        found[id(node)] = frozenset()
        said = node.get("type")
        names = [name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)]
        parts: list[frozenset[str]] = [_TYPES.intersection(name.lower() for name in names)]
        if isinstance(node.get("$ref"), str):
            parts.append(self._types(self._resolve(node["$ref"]), found, depth + 1))
        for keyword in _COMBINED:
            combined = node.get(keyword)
            each = [self._types(one, found, depth + 1) for one in combined] if isinstance(combined, list) else []
            parts += each if keyword == "allOf" else [_any_types(each)]
        types = reduce(_common_types, parts) or _implied(node)
        found[id(node)] = types | {"null"} if node.get("nullable") is True else types
        return found[id(node)]

    def _any_of(self, nodes: Sequence[Any]) -> Schema:
        found = [node for node in nodes if isinstance(node, Mapping)]
        if not found:  # however deep values go, one schema that says nothing will do
            return Schema({}, self._root) if self._node else self
        return Schema(found[0] if len(found) == 1 else {"anyOf": found}, self._root)

    @cached_property
    def _alternatives(self) -> Sequence[Mapping[str, Any]]:
        """The schema and every schema that it refers to or combines, each once."""
        found: dict[int, Mapping[str, Any]] = {}
        waiting = [self._node]
        for node in waiting:  # which grows meanwhile
            if not isinstance(node, Mapping) or id(node) in found:
                continue
            found[id(node)] = node
            if isinstance(node.get("$ref"), str):
                waiting.append(self._resolve(node["$ref"]))
            for keyword in _COMBINED:
                if isinstance(node.get(keyword), list):
                    waiting += node[keyword]
        return list(found.values())

    def _resolve(self, reference: str) -> Any:
        """Return what a reference within the document (``#/$defs/Place``) points at, or None."""
        if not reference.startswith("#"):
            return None
        node = self._root
        for part in filter(None, unquote(reference[1:]).split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and _INDEX.fullmatch(key) and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node


def json_text(value: Any) -> str:
    """Return ``value`` as JSON, with Unicode as it is; half a surrogate pair, which no UTF-8 can carry, is U+FFFD.

    Raises ValueError or TypeError if JSON has no such value.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isascii() else _without_surrogates(text)


def json_escaped(text: str) -> str:
    """Return what stands for ``text`` inside the quotes of a JSON string; see ``json_text``."""
    escaped = encode_basestring(text)[1:-1]
    return escaped if escaped.isascii() else _without_surrogates(escaped)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _choices(node: Mapping[str, Any]) -> list[Any]:
    if "const" in node:
        return [node["const"]]
    values = node.get("enum")
    return values if isinstance(values, list) else []


def _implied(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema without ``type`` speaks of."""
    choices = _choices(node)
    if choices:
        return frozenset(map(_type_of, choices))
    if isinstance(node.get("properties"), Mapping):
        return frozenset({"object"})
    return frozenset({"array"} if isinstance(node.get("items"), Mapping) else ())


def _any_types(alternatives: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the types of a value that one of several schemas allows."""
    types: frozenset[str] = frozenset().union(*alternatives)
    return types | _UNTYPED if types and not all(alternatives) else types


def _common_types(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Return the types that two schemas allow; an empty one says nothing, and if they exclude each other, all count."""
    if not one or not other:
        return one or other
    common = one & other
    if ("number" in one and "integer" in other) or ("integer" in one and "number" in other):
        common |= {"integer"}
    return common or one | other


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


def _scan(word: str) -> str | None:
    """Return ``word``, which should be one JSON value and nothing else, repaired; None if it is not one."""
    scanner = JSONScanner()
    end = scanner.feed(word)
    scanner.finish()
    return scanner.take() if scanner.done and end == len(word) else None


def _container(word: str) -> str | None:
    """Return the JSON of an object or array, which may be written as Python writes it; None if it is neither."""
    decoded = _scan(word)
    if decoded is not None:
        return decoded
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            value = ast.literal_eval(word)
        return json_text(value) if isinstance(value, dict | list) else None
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
