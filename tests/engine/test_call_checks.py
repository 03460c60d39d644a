"""Finished calls on their way to the client: what is counted, logged and repaired."""

from __future__ import annotations

import logging

import pytest

from vllm_mlx_core.api import TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.engine.call_checks import CallChecks, ToolSchemas
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


# -- repair -----------------------------------------------------------------------------------------------------------


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
