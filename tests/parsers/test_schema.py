from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_parsers.schema import Schema, json_escaped, json_text


def value(schema: Any, text: str) -> Any:
    return json.loads(Schema(schema).to_json(text))


NULLABLE_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "integer"}, " 5\n", 5),
        ({"type": "integer"}, "018956", 18956),
        ({"type": "integer"}, "-7", -7),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, "5.5", "5.5"),
        ({"type": "integer"}, "1e3", "1e3"),
        ({"type": "integer"}, "2026-01-15", "2026-01-15"),
        ({"type": "integer"}, "true", "true"),
        ({"type": "integer"}, "", ""),
        ({"type": "integer"}, "9" * 5000, "9" * 5000),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, ".5", 0.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "Infinity", "Infinity"),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, " false ", False),
        ({"type": "boolean"}, "1", "1"),
        ({"type": "boolean"}, "maybe", "maybe"),
        ({"type": "null"}, "None", None),
        ({"type": "null"}, "nothing", "nothing"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, " 5 ", " 5 "),
        ({"type": "string"}, '"quoted"', '"quoted"'),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string", "nullable": True}, "null", None),
        ({"type": "object"}, '{"a": {"b": [1]}}', {"a": {"b": [1]}}),
        ({"type": "object"}, "{'a': True, 'b': None}", {"a": True, "b": None}),
        ({"type": "object"}, '{"a": 1} x', '{"a": 1} x'),
        ({"type": "object"}, "[1]", "[1]"),
        ({"type": "object"}, "not json", "not json"),
        ({"type": "array"}, "[1, 'x']", [1, "x"]),
        ({"type": "array"}, "[1e999, ('x',)]", "[1e999, ('x',)]"),
        ({"type": "array"}, "[b'x']", "[b'x']"),
        ({"type": "array"}, "['\\d']", ["\\d"]),
        ({"type": "array"}, "[" * 10_000 + "'", "[" * 10_000 + "'"),
        (NULLABLE_INTEGER, "5", 5),
        (NULLABLE_INTEGER, "null", None),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, "1.5", 1.5),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "3", 3),
        ({"type": ["boolean", "null"]}, "false", False),
        ({"type": ["string", "integer"]}, "five", "five"),
        ({"type": "STRING"}, "5", "5"),
        ({"enum": ["edit", "view"]}, "edit", "edit"),
        ({"enum": [1, 2, None]}, "2", 2),
        ({"enum": [1, 2, None]}, "null", None),
        ({"enum": ["1", 2]}, "1", "1"),
        ({"const": True}, "True", True),
        ({"type": "string", "enum": ["5"]}, "5", "5"),
        ({"enum": [{"a": 1}]}, '{"a": 1}', {"a": 1}),
        ({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}),
        ({"items": {}}, "[1]", [1]),
        ({}, "5", "5"),
        ({}, "null", "null"),
        ({}, '[1, {"a": null}]', [1, {"a": None}]),
        ({}, "{not json", "{not json"),
        (True, "5", "5"),
        ({"type": "no such type"}, "5", "5"),
    ],
)
def test_text_becomes_the_plainest_value_that_the_schema_allows_and_else_a_string(schema, text, expected):
    result = value(schema, text)
    assert result == expected
    assert type(result) is type(expected)


DOCUMENT = {
    "$defs": {
        "Place": {"type": "object", "properties": {"city": {"type": "string"}, "next": {"$ref": "#/$defs/Place"}}},
        "a/b~c": {"type": "integer"},
        "With space": {"type": "boolean"},
        "Loop": {"$ref": "#/$defs/Loop"},
        "Two": {"anyOf": [{"$ref": "#/definitions/Text"}, {"$ref": "#/$defs/a~1b~0c"}]},
    },
    "definitions": {"Text": {"type": "string"}},
    "properties": {
        "place": {"$ref": "#/$defs/Place"},
        "places": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "n": {"$ref": "#/$defs/a~1b~0c"},
        "b": {"$ref": "#/$defs/With%20space"},
        "loop": {"$ref": "#/$defs/Loop"},
        "two": {"$ref": "#/$defs/Two"},
        "lost": {"$ref": "#/$defs/Nowhere"},
        "remote": {"$ref": "https://example.org/schema.json"},
        "listed": {"$ref": "#/anyOf/1/properties/x"},
    },
    "anyOf": [{"properties": {"n": {"type": "null"}}}, {"properties": {"x": {"type": "integer"}}}],
    "additionalProperties": {"type": "number"},
}


@pytest.mark.parametrize(
    ("path", "types"),
    [
        ("place", {"object"}),
        ("place city", {"string"}),
        ("place next next next city", {"string"}),
        ("places [] next city", {"string"}),
        ("n", {"integer", "null"}),
        ("b", {"boolean"}),
        ("loop", set()),
        ("two", {"string", "integer"}),
        ("lost", set()),
        ("remote", set()),
        ("listed", {"integer"}),
        ("x", {"integer"}),
        ("anything else", {"number"}),
        ("place unknown", set()),
    ],
)
def test_members_references_and_items_are_followed(path, types):
    schema = Schema(DOCUMENT)
    for step in path.split(" ") if path != "anything else" else [path]:
        schema = schema.items if step == "[]" else schema.member(step)
    assert schema.types == types


def test_the_names_of_declared_members_are_known():
    assert Schema({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}).member_names == {"a", "b"}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({}, "5", 5),
        ({}, ' "a" ', "a"),
        ({}, "null", None),
        ({}, "not json", "not json"),
        ({}, "", ""),
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, '"a\\nb"', "a\nb"),
        ({"type": "integer"}, '"5"', "5"),
        ({"type": "integer"}, "[1, True,]", [1, True]),
    ],
)
def test_json_is_taken_as_it_is_unless_it_must_be_a_string(schema, text, expected):
    assert json.loads(Schema(schema).json_of(text)) == expected


def test_shared_and_recursive_schemas_take_no_exponential_work():
    shared: dict[str, Any] = {"type": "integer"}
    for _ in range(50):
        shared = {"anyOf": [shared, shared], "properties": {"a": shared, "b": shared}}
    schema = Schema(shared)
    assert schema.types == {"integer"}
    for _ in range(50):
        schema = schema.member("a")
    assert schema.to_json("5") == "5"


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, "null", "null"),
        ({"type": ["string", "integer"], "allOf": [{"type": "string"}]}, "5", "5"),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, "5.0", 5),
        ({"type": ["integer", "string"], "anyOf": [{"type": "number"}, {"type": "null"}]}, "5", 5),
        ({"$ref": "#/$defs/Id", "type": "string", "$defs": {"Id": {"type": ["integer", "string"]}}}, "5", "5"),
        ({"type": "string", "anyOf": [{"type": "integer"}]}, "5", 5),
    ],
)
def test_a_value_has_a_type_that_all_schemas_it_must_fit_allow(schema, text, expected):
    assert value(schema, text) == expected


ANYTHING_OR_NULL = {"anyOf": [{}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("text", "expected"), [('{"a": [1]}', {"a": [1]}), ("[1]", [1]), ("null", None), ("5", "5"), ("[x", "[x")]
)
def test_an_alternative_without_a_type_may_be_anything_that_a_value_without_schema_may_be(text, expected):
    assert value(ANYTHING_OR_NULL, text) == expected


def test_schemas_nested_too_deeply_say_nothing():
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(5000):
        schema = {"allOf": [schema]}
    assert value(schema, "5") == "5"


class CountedSchema(dict[str, Any]):
    """A schema that counts how often it is looked at."""

    looks = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def test_what_a_schema_says_is_found_once():
    node = CountedSchema(type="array", items=CountedSchema(type="integer"))
    schema = Schema(node)
    assert [schema.items.to_json(str(i)) for i in range(3)] == ["0", "1", "2"]
    looks = node.looks + node["items"].looks
    assert [schema.items.to_json(str(i)) for i in range(100)] == [str(i) for i in range(100)]
    assert node.looks + node["items"].looks == looks


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=10,
)
keywords = st.sampled_from(
    ["type", "anyOf", "oneOf", "allOf", "properties", "items", "enum", "const", "$ref", "$defs", "nullable"]
)
said = st.sampled_from(
    ["string", "integer", "number", "boolean", "null", "array", "object", "#", "#/$defs/a", "#/anyOf/0"]
)
schemas = st.recursive(
    json_values | said | st.lists(said, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
texts = st.text(max_size=12) | json_values.map(json.dumps) | json_values.map(repr)


@settings(deadline=None)
@given(schemas, texts, st.text(max_size=3))
def test_any_json_as_a_schema_gives_valid_json_for_any_text(schema, text, name):
    for part in (Schema(schema), Schema(schema).member(name), Schema(schema).items):
        for result in (part.to_json(text), part.json_of(text)):
            json.loads(result, parse_constant=pytest.fail)
        assert all(isinstance(member, str) for member in part.member_names)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_under_string_is_kept_to_the_last_character(text):
    for schema in ({"type": "string"}, {"type": ["string"], "minLength": 1}, {"enum": ["a", "b"]}):
        assert value(schema, text) == text


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_text_is_what_stands_inside_the_quotes(text):
    assert json.loads(f'"{json_escaped(text)}"') == text
    assert json_text(text) == f'"{json_escaped(text)}"'


def test_half_a_surrogate_pair_is_replaced():
    assert json_escaped("a\ud83d") == json_text("a\ud83d")[1:-1] == "a\ufffd"


def test_a_schema_that_says_nothing_is_its_own_for_whatever_is_nested_in_it():
    empty = Schema({"type": "array"}).items
    assert empty.items is empty
    assert empty.member("a") is empty
