"""Finished calls against their tools' schemas: what is counted, logged and repaired, and what costs too much."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.engine.argument_schema import ArgumentSchema, Violation
from vllm_mlx_core.engine.call_checks import CallChecks, ToolSchemas
from vllm_mlx_core.engine.coercion import repaired
from vllm_mlx_core.testing.events import join

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def events(name, *arguments, index=0, end=True):
    made = [ToolCallStart(index, f"id{index}", name), *(ToolCallArguments(index, piece) for piece in arguments)]
    return [*made, ToolCallEnd(index)] if end else made


def checks(schema=SCHEMA, *, validates=True, repairs=False):
    return CallChecks(ToolSchemas([Tool("f", parameters=schema)]), validates=validates, repairs=repairs)


def through(stage, sent):
    return [each for event in sent for each in stage.feed(event)] + list(stage.finish())


# -- validation -------------------------------------------------------------------------------------------------------


def test_a_call_that_fits_goes_on_unchanged_and_unnoticed(caplog):
    stage = checks()
    sent = [TextDelta("so "), *events("f", '{"n"', ": 1}"), TextDelta(" done")]
    assert through(stage, sent) == sent
    assert (stage.num_invalid, caplog.records) == (0, [])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("f", '{"n": "secret"}', "A call of 'f' does not fit: type at '$.n'"),
        ("f", '{"m": "secret"}', "A call of 'f' does not fit: required at '$'"),
        ("f", "", "A call of 'f' does not fit: required at '$'"),
        ("g", '{"n": "secret"}', "A call of 'g' does not fit: no such tool at '$'"),
    ],
)
def test_a_violation_is_logged_without_values_and_counted_and_the_call_goes_on(name, arguments, said, caplog):
    stage = checks()
    sent = events(name, arguments) if arguments else events(name)
    with caplog.at_level(logging.WARNING):
        assert through(stage, sent) == sent
    assert stage.num_invalid == 1
    assert [record.getMessage() for record in caplog.records] == [said]


def test_long_names_are_cut_in_the_log(caplog):
    through(checks(), events("g" * 1000, "{}"))
    assert len(caplog.text) < 500


def test_a_call_that_was_cut_off_is_not_checked():
    stage = checks()
    sent = events("f", '{"n": "x', end=False)
    assert through(stage, sent) == sent
    assert stage.num_invalid == 0


def test_without_validation_nothing_is_counted(caplog):
    stage = checks(validates=False, repairs=True)
    through(stage, events("g", "{}"))
    assert (stage.num_invalid, caplog.records) == (0, [])


DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


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


NUMBERS = [f"{i}" for i in range(1000)]


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (items(enum=list(range(1000))), {"n": list(range(1000, 5000))}),
        (items(enum=[[list(range(1000))] * 10] * 10), {"n": [[list(range(999))] * 10] * 100}),
        (items(anyOf=[{"allOf": [{"type": "null"}] * 4000}] * 2), {"n": ["x"] * 2000}),
        ({"properties": {"n": {"anyOf": [{"type": "object"}] * 4000}}}, {"n": "{" + "x" * 1_000_000}),
        ({"properties": {"n": {"anyOf": [{"type": "integer"}] * 4000}}}, {"n": [NUMBERS] * 1000}),
        ({"properties": {"n": {"uniqueItems": True}}}, {"n": [{"a": NUMBERS, "b": i} for i in range(550)]}),
    ],
)
def test_a_check_and_a_repair_that_would_take_minutes_are_given_up_soon(schema, arguments):
    text = json.dumps(arguments)
    stage = checks(schema, repairs=True)
    assert through(stage, events("f", text)) == events("f", text)


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
        (
            {"$schema": DRAFT_7, "properties": {"n": {"items": [{"type": "null"}]}}},
            {"n": [1]},
            "type",
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "properties": {"n": {"maximum": 3, "exclusiveMaximum": True}},
            },
            {"n": 3},
            "maximum",
        ),
        ({"$defs": {"a": {"enum": [1]}}, "properties": {"n": {"$ref": "#/$defs/a"}}}, {"n": 2}, "enum"),
        ({"properties": {"pattern": {"type": "integer"}}}, {"pattern": "x"}, "type"),
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


# -- repair -----------------------------------------------------------------------------------------------------------


def typed(type_, **more):
    return {"type": type_, **more}


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
    schema = {"type": "object", "properties": {"v": part}, "$defs": {"count": {"type": "integer"}}}
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


def test_with_repair_arguments_wait_for_the_end_of_their_call_and_the_repaired_ones_are_checked():
    stage = checks(repairs=True)
    start, *pieces, end = events("f", '{"n"', ': "1"}')
    assert list(stage.feed(start)) == [start]
    assert [list(stage.feed(piece)) for piece in pieces] == [[], []]
    assert list(stage.feed(end)) == [ToolCallArguments(0, '{"n": 1}'), end]
    assert stage.num_invalid == 0


def test_with_repair_a_call_of_an_unknown_tool_and_one_without_arguments_go_on():
    stage = checks(repairs=True)
    sent = [*events("g", '{"n": "1"}'), *events("f", index=1)]
    assert through(stage, sent) == sent
    assert stage.num_invalid == 2


def test_with_repair_nothing_of_a_call_that_never_ends_is_lost():
    stage = checks(repairs=True)
    sent = [*events("f", '{"n"', ": ", end=False), TextDelta("oh"), *events("f", '{"n"', index=1, end=False)]
    assert join(through(stage, sent)) == join(sent)
