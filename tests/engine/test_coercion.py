"""Arguments whose scalars have the wrong type, put right where that is obvious."""

from __future__ import annotations

import json

import pytest

from vllm_mlx_core.engine.argument_schema import ArgumentSchema
from vllm_mlx_core.engine.coercion import repaired

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def typed(type_, **more):
    return {"type": type_, **more}


DEFS = {
    "count": {"$anchor": "count", "type": "integer"},
    "any": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
    "a b/c": {"type": "integer"},
}


@pytest.mark.parametrize(
    ("part", "given", "wanted"),
    [
        (typed("integer"), "42", 42),
        (typed("integer"), " -42 ", -42),
        (typed("integer"), "42.0", 42),
        (typed("integer"), 42.0, 42),
        (typed("integer"), "42.5", "42.5"),
        (typed("integer"), 42.5, 42.5),
        (typed("integer"), "forty", "forty"),
        (typed("integer"), "٤٢", "٤٢"),
        (typed("integer"), "", ""),
        (typed("integer"), True, True),
        (typed("integer"), "9" * 5000, "9" * 5000),
        (typed("number"), "1.5", 1.5),
        (typed("number"), "15", 15),
        (typed("number"), "1e3", 1000.0),
        (typed("number"), "1e999", "1e999"),
        (typed("number"), "nan", "nan"),
        (typed("number"), 3, 3),
        (typed("boolean"), "true", True),
        (typed("boolean"), "False", False),
        (typed("boolean"), "yes", "yes"),
        (typed("boolean"), 1, 1),
        (typed("string"), 42, "42"),
        (typed("string"), 1.5, "1.5"),
        (typed("string"), True, "true"),
        (typed("string"), None, None),
        (typed("string"), "42", "42"),
        (typed("string"), "null", "null"),
        (typed(["integer", "null"]), "null", None),
        (typed(["integer", "null"]), "7", 7),
        (typed(["string", "null"]), "null", "null"),
        (typed(["string", "integer"]), "7", "7"),
        (typed("array", items=typed("integer")), ["1", 2, "x"], [1, 2, "x"]),
        (typed("array", items=typed("integer")), '["1", 2]', [1, 2]),
        (typed("array", prefixItems=[typed("string")], items=typed("integer")), [1, "2"], ["1", 2]),
        (typed("object"), '{"a": 1}', {"a": 1}),
        (typed("object"), "a", "a"),
        (typed("object", properties={"a": typed("boolean")}), {"a": "true", "b": "true"}, {"a": True, "b": "true"}),
        (typed("object", additionalProperties=typed("integer")), {"a": "1"}, {"a": 1}),
        ({"anyOf": [typed("integer"), typed("null")]}, "5", 5),
        ({"anyOf": [typed("integer"), typed("null")]}, "null", None),
        ({"oneOf": [typed("string"), typed("integer")]}, "5", "5"),
        ({"anyOf": [typed("object", properties={"a": typed("integer")}), typed("null")]}, {"a": "5"}, {"a": 5}),
        ({"allOf": [typed("integer"), {"minimum": 3}]}, "5", 5),
        ({"$ref": "#/$defs/count"}, "5", 5),
        ({"$ref": "#/$defs/any/anyOf/1"}, "5", 5),
        ({"$ref": "#/$defs/a%20b~1c"}, "5", 5),
        ({"$ref": "#count"}, "5", 5),
        ({"$ref": "#/$defs/nothing"}, "5", "5"),
        ({"$ref": "https://example.com/x"}, "5", "5"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", "2"]}, 2, "2"),
        ({"enum": ["1", 1]}, 1, 1),
        ({"const": True}, "true", True),
        ({"enum": [1, 2]}, "3", "3"),
        ({}, "5", "5"),
    ],
)
def test_a_scalar_becomes_what_its_schema_wants_if_that_is_obvious(part, given, wanted):
    schema = {"type": "object", "properties": {"v": part}, "$defs": DEFS}
    result = json.loads(repaired(json.dumps({"v": given}), ArgumentSchema(schema)))
    assert result == {"v": wanted}
    assert type(result["v"]) is type(wanted)


def test_arguments_that_need_no_repair_stay_as_the_model_wrote_them():
    text = '{ "n":1, "text" : "\\u00e9 é" }'
    assert repaired(text, ArgumentSchema(SCHEMA)) == text


def test_a_repair_keeps_unicode_and_order():
    assert repaired('{"z": "é", "n": "1"}', ArgumentSchema(SCHEMA)) == '{"z": "é", "n": 1}'


@pytest.mark.parametrize("text", ["[1", '{"n": "1", "x": "\\ud800"}', '{"n": "1", "x": 1e999}', '"x"', ""])
def test_what_cannot_be_written_again_stays(text):
    assert repaired(text, ArgumentSchema(SCHEMA)) == text
