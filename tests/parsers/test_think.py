from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, ReasoningDelta, TextDelta
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.tagged import TaggedReasoningParser
from vllm_mlx_parsers.reasoning.think import ThinkReasoningParser

QUOTED = "Use the </think> tag and <think> too."


def parser(*, thinking_open: bool = False, thinking_off: bool = False) -> ThinkReasoningParser:
    return ThinkReasoningParser(ParserContext(thinking_open=thinking_open, thinking_off=thinking_off))


class TestThinkConforms(ReasoningParserSuite):
    parser = ThinkReasoningParser
    samples = (
        ReasoningSample("<think>\nplan it\n</think>\n\nThe answer.", "plan it", "The answer."),
        ReasoningSample("\n <think>plan\n\nmore</think>The answer.\n", "plan\n\nmore", "The answer.\n"),
        ReasoningSample("<think></think>Hi", "", "Hi"),
        ReasoningSample("<think>\n\n</think>\n\nHi", "", "Hi"),
        ReasoningSample("<think>only thoughts \n", "only thoughts", ""),
        ReasoningSample("<think>a < b </thin k></think> x", "a < b </thin k>", " x"),
        ReasoningSample("<think>a</think>\n\n    indented", "a", "    indented"),
        ReasoningSample(f"<think>a</think>\n{QUOTED}", "a", QUOTED, literal=True),
        ReasoningSample("<think>a <think> b</think>c", "a <think> b", "c", literal=True),
        ReasoningSample("Just an answer.", "", "Just an answer."),
        ReasoningSample("Hm. <think>x</think> y", "", "Hm. <think>x</think> y", literal=True),
        ReasoningSample("plan it\n</think>\n\nThe answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("<think>\nplan it</think>The answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("still thinking", "still thinking", "", thinking_open=True),
        ReasoningSample("</think>\n\nHi", "", "Hi", thinking_open=True),
        ReasoningSample("\n</think>Hi", "", "Hi", thinking_open=True),
        ReasoningSample("</think>private planning</think>visible", "private planning", "visible", thinking_open=True),
        ReasoningSample("</think>\n\nHi", "", "Hi"),
        ReasoningSample(f"a\n</think>\n\n{QUOTED}", "a", QUOTED, thinking_open=True, literal=True),
        ReasoningSample("Hello.", "", "Hello.", thinking_off=True),
        ReasoningSample(f"<think>{QUOTED}", "", f"<think>{QUOTED}", thinking_off=True, literal=True),
    )


def test_a_block_opened_in_the_prompt_is_reasoning_up_to_the_closing_tag(run, width):
    folded = fold(run(parser(thinking_open=True), "plan it\n</think>\n\nThe answer.", width))
    assert (folded.reasoning, folded.content) == ("plan it", "The answer.")


def test_with_thinking_switched_off_everything_is_the_answer(run, width):
    for text in ("Hello.", "<think>Hello.</think>", "</think>", "\n\nHello.\n"):
        folded = fold(run(parser(thinking_off=True), text, width))
        assert (folded.reasoning, folded.content) == ("", text)


def test_a_lone_closing_tag_at_the_start_is_dropped(run, width):
    for thinking_open in (True, False):
        folded = fold(run(parser(thinking_open=thinking_open), "</think>\n\nHi", width))
        assert (folded.reasoning, folded.content) == ("", "Hi")


def test_thinking_that_goes_on_after_a_lone_closing_tag_is_not_shown_as_the_answer(run, width):
    folded = fold(run(parser(thinking_open=True), "</think>private planning</think>visible", width))
    assert (folded.reasoning, folded.content) == ("private planning", "visible")


def test_an_answer_on_the_line_of_a_lone_closing_tag_is_not_lost(run, width):
    folded = fold(run(parser(thinking_open=True), "</think>Hi there <", width))
    assert (folded.reasoning, folded.content) == ("", "Hi there <")


def test_tags_in_the_answer_are_text(run, width):
    folded = fold(run(parser(thinking_open=True), f"a</think>\n\n{QUOTED}", width))
    assert (folded.reasoning, folded.content) == ("a", QUOTED)


def test_text_before_a_tag_makes_the_tag_text(run, width):
    folded = fold(run(parser(), "So: <think>x</think>", width))
    assert (folded.reasoning, folded.content) == ("", "So: <think>x</think>")


def test_an_unclosed_block_is_reasoning_to_its_end(run, width):
    folded = fold(run(parser(), "<think>\nneed the file </thi", width))
    assert (folded.reasoning, folded.content) == ("need the file </thi", "")


@pytest.mark.parametrize("held", ["<", "<th", "</think", "\n", " <think"])
def test_the_beginning_of_a_tag_at_the_end_is_kept_where_it_belongs(run, width, held):
    assert fold(run(parser(), held, width)).content == held
    assert fold(run(parser(thinking_open=True), held, width)).reasoning == held.strip()


def test_reasoning_and_answer_stream():
    stream = parser(thinking_open=True)
    pieces = ["\n", "plan", " it", "\n", "now", "</th", "ink>", "\n\n", "The", " answer"]
    assert [list(stream.feed(Chunk(piece))) for piece in pieces] == [
        [],
        [ReasoningDelta("plan")],
        [ReasoningDelta(" it")],
        [],
        [ReasoningDelta("\nnow")],
        [],
        [],
        [],
        [TextDelta("The")],
        [TextDelta(" answer")],
    ]


def test_a_parser_for_other_tags_needs_two_attributes():
    class Magistral(TaggedReasoningParser):
        start = "[THINK]"
        end = "[/THINK]"

    assert Magistral.special_tokens == ("[THINK]", "[/THINK]")
    folded = fold(Magistral(ParserContext()).parse("[THINK]hm <think>[/THINK]\nHi"))
    assert (folded.reasoning, folded.content) == ("hm <think>", "Hi")
