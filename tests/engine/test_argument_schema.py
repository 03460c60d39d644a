"""Arguments against schemas of every dialect: what is found, and what costs too much or is broken."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.engine.argument_schema import ArgumentSchema, Violation
from vllm_mlx_core.engine.coercion import repaired

DRAFT_3 = "http://json-schema.org/draft-03/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_6 = "http://json-schema.org/draft-06/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def twice_as_many(levels):
    """Return a schema that a naive validator looks at 2 ** ``levels`` times."""
    parts = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**parts, f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


def nested(levels):
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"properties": {"n": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"type": "no such type"}, {}),
        ({"properties": [1]}, {"n": 1}),
        ({"required": 5}, {}),
        ({"anyOf": 5}, {}),
        ({"$ref": "#"}, {}),
        ({"$ref": "#/nowhere"}, {}),
        ({"$schema": "http://127.0.0.1:1/no-such-schema"}, {}),
        (
            {"properties": {"n": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a+)+$"}}},
            {"n": "a" * 60},
        ),
        ({"properties": {"n": {"pattern": "(a+)+$"}}}, {"n": "a" * 60 + "b"}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}, {"a" * 60 + "b": 1}),
        ({"properties": {"n": {"pattern": "("}}}, {"n": ""}),
        (twice_as_many(40), {}),
        (nested(100_000), {"n": {"n": 1}}),
        ({"properties": {"n": {"uniqueItems": True}}}, {"n": [{"a": i} for i in range(20_000)]}),
        ({"properties": {"n": {"items": {"type": "integer"}}}}, {"n": list(range(100_000))}),
    ],
)
def test_a_schema_that_is_wrong_or_costs_too_much_finds_no_fault(schema, arguments):
    assert ArgumentSchema(schema).violation(arguments) is None
    text = json.dumps(arguments)
    assert repaired(text, ArgumentSchema(schema)) == text


def items(**schema):
    return {"properties": {"n": {"items": schema}}}


def deep(levels):
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"$defs": schema}
    return schema


NUMBERS = [f"{i}" for i in range(1000)]
MANY = {f"d{i}": {"type": "string"} for i in range(20_000)}


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (items(enum=list(range(1000))), {"n": list(range(1000, 5000))}),
        (items(enum=[[list(range(1000))] * 10] * 10), {"n": [[list(range(999))] * 10] * 100}),
        (items(anyOf=[{"allOf": [{"type": "null"}] * 4000}] * 2), {"n": ["x"] * 2000}),
        ({"properties": {"n": {"anyOf": [{"type": "object"}] * 4000}}}, {"n": "{" + "x" * 1_000_000}),
        ({"properties": {"n": {"anyOf": [{"type": "integer"}] * 4000}}}, {"n": [NUMBERS] * 1000}),
        ({"properties": {"n": {"uniqueItems": True}}}, {"n": [{"a": NUMBERS, "b": i} for i in range(550)]}),
        ({"properties": {"n": {"allOf": [{"items": {}}] * 4000}}}, {"n": [0] * 70_000}),
        (
            {"properties": {"n": {"allOf": [{"additionalProperties": {}}] * 4000}}},
            {"n": dict.fromkeys(NUMBERS * 70, 0)},
        ),
        (items(anyOf=[False] * 70_000), {"n": ["x"] * 2000}),
        (items(oneOf=[{}] * 4000), {"n": [0] * 4000}),
        ({**items(**{"$ref": "#/$defs" + "/$defs" * 900}), **deep(900)}, {"n": [0] * 4000}),
        ({**items(**{"$ref": "#last"}), "$defs": {**MANY, "last": {"$anchor": "last"}}}, {"n": [0] * 4000}),
        ({**items(**{"$dynamicRef": "#last"}), "$defs": {**MANY, "last": {"$anchor": "last"}}}, {"n": [0] * 4000}),
        ({**items(**{"$ref": "last"}), "$defs": {**MANY, "last": {"$id": "last"}}}, {"n": [0] * 4000}),
        ({**items(anyOf=[{"$ref": "#nowhere"}]), "$defs": MANY}, {"n": ["0"] * 4000}),
        (items(anyOf=[{"not": {"description": ["x" * 1000] * 10_000}}]), {"n": [0] * 2000}),
    ],
)
def test_a_check_and_a_repair_that_would_take_minutes_are_given_up_soon(schema, arguments):
    made, text = ArgumentSchema(schema), json.dumps(arguments)
    made.violation(arguments)
    assert repaired(text, made) == text


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/schema.json", "https://example.com/schema", "file:///etc/passwd"])
def test_nothing_is_ever_fetched(url, monkeypatch):
    reached = []
    monkeypatch.setattr(socket, "create_connection", lambda *args, **kwargs: reached.append(args))
    monkeypatch.setattr(socket.socket, "connect", lambda *args: reached.append(args))
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **kwargs: reached.append(args))
    other = {"$schema": url, "properties": {"n": {"$ref": url}}}
    for schema in ({"$ref": url}, {"$id": url, "$ref": "other.json"}, other):
        assert ArgumentSchema(schema).violation({"n": 1}) is None
    assert reached == []


@pytest.mark.parametrize(
    ("schema", "arguments", "violation"),
    [
        ({"properties": {"n": False}}, {"n": 1}, "false"),
        ({"$schema": DRAFT_3, "properties": {"m": {"required": True}}}, {"n": 1}, "required"),
        ({"$schema": DRAFT_3, "properties": {"n": {"divisibleBy": 2}}}, {"n": 1}, "divisibleBy"),
        ({"$schema": DRAFT_6, "properties": {"n": {"exclusiveMaximum": 3}}}, {"n": 3}, "exclusiveMaximum"),
        ({"$schema": DRAFT_2019, "dependentRequired": {"n": ["m"]}}, {"n": 3}, "dependentRequired"),
        (
            {"$schema": DRAFT_7, "properties": {"n": {"items": [{"type": "null"}]}}},
            {"n": [1]},
            "type",
        ),
        (
            {
                "$schema": DRAFT_4,
                "properties": {"n": {"maximum": 3, "exclusiveMaximum": True}},
            },
            {"n": 3},
            "maximum",
        ),
        ({"$defs": {"a": {"enum": [1]}}, "properties": {"n": {"$ref": "#/$defs/a"}}}, {"n": 2}, "enum"),
        ({"$defs": {"a b": {"enum": [1]}}, "properties": {"n": {"$ref": "#/$defs/a%20b"}}}, {"n": 2}, "enum"),
        ({"$defs": {"a": {"$anchor": "here", "enum": [1]}}, "properties": {"n": {"$ref": "#here"}}}, {"n": 2}, "enum"),
        ({"$id": "http://x/", "properties": {"m": {"enum": [1]}, "n": {"$ref": "#/properties/m"}}}, {"n": 2}, "enum"),
        ({"properties": {"pattern": {"type": "integer"}}}, {"pattern": "x"}, "type"),
        ({"dependentRequired": {"pattern": ["m"]}}, {"pattern": "x"}, "dependentRequired"),
        ({"$schema": DRAFT_7, "dependencies": {"pattern": ["m"]}}, {"pattern": "x"}, "dependencies"),
        ({"additionalProperties": False}, {"n": 2}, "additionalProperties"),
        ({"properties": {"n": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}}, {"n": 2}, "anyOf"),
    ],
)
def test_the_dialects_and_keywords_that_clients_send_are_checked(schema, arguments, violation):
    found = ArgumentSchema(schema).violation(arguments)
    assert found is not None
    assert found.keyword == violation


def test_a_violation_names_the_place():
    schema = {"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}}
    assert ArgumentSchema(schema).violation({"a": [{"b": "x"}, {"b": 1}]}) == Violation("$.a[1].b", "type")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    ["type", "properties", "items", "anyOf", "allOf", "oneOf", "$ref", "enum", "const", "required", "not", "pattern",
     "additionalProperties", "prefixItems", "minimum", "multipleOf", "uniqueItems", "$defs", "if", "then", "n"]
)  # fmt: skip
schema_parts = st.recursive(
    json_values | st.sampled_from(["integer", "string", "object", "array", "#", "#/properties/n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keywords, schema_parts, max_size=4), st.dictionaries(st.sampled_from("nab"), json_values))
def test_whatever_the_schema_nothing_raises_and_a_repair_is_json(schema, arguments):
    made = ArgumentSchema(schema)
    made.violation(arguments)
    json.loads(repaired(json.dumps(arguments), made))


def test_jsonschema_is_imported_by_the_first_check_only():
    code = (
        "import sys\nimport vllm_mlx_core.engine.client\nassert 'jsonschema' not in sys.modules\n"
        "from vllm_mlx_core.engine.argument_schema import ArgumentSchema\n"
        "assert ArgumentSchema({'type': 'array'}).violation({}) and 'jsonschema' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
