"""Reasoning parsers for tags of one's own."""

from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.tagged import TaggedReasoningParser
from vllm_mlx_parsers.reasoning.wrapped import WrappedAnswerParser


class Minimal(TaggedReasoningParser):
    start = "(think)"
    end = "(/think)"


class Full(WrappedAnswerParser):
    start = "[[plan"
    end = "]]"
    other_tags = {"Plan:": ("Answer:", "Reply:")}  # noqa: RUF012 - a constant
    notes = ("<note>", "</note>")
    answer_start = "<out>"
    answer_end = "</out>"


class TestFullConforms(ReasoningParserSuite):
    parser = Full
    samples = (
        ReasoningSample("[[plan a ]] Answer: ]]<out>b</out>", "a", " Answer: ]]<out>b</out>", literal=True),
        ReasoningSample("Plan: a ]] b\nReply:\nc", "a ]] b", "c", literal=True),
        ReasoningSample("Plan: a Answer: Reply: b", "a", " Reply: b", literal=True),
        ReasoningSample("[[plan a <note>half </note> b]]\nc", "a half  b", "c"),
        ReasoningSample("[[plan a]]\n<out>\n  b <out>c</out>\n</out>\n", "a", "  b <out>c</out>", literal=True),
        ReasoningSample("[[plan a]]<out>b\n</out>\n\nc", "a", "b\n\nc"),
        ReasoningSample("[[plan a]]<out>the </out> tag \n", "a", "the </out> tag \n", literal=True),
        ReasoningSample("]]<out>b</out>", "", "b", thinking_open=True),
        ReasoningSample("<out>b\n\n</out>", "", "b", thinking_off=True),
        ReasoningSample("<out>b", "", "b"),
        ReasoningSample(" <out", "", " <out", literal=True),
    )


def test_a_parser_for_other_tags_needs_two_attributes():
    assert Minimal.special_tokens == ("(think)", "(/think)")
    folded = fold(Minimal(ParserContext()).parse("(think)hm <think>(/think)\nHi"))
    assert (folded.reasoning, folded.content) == ("hm <think>", "Hi")


def test_all_tags_are_kept_by_the_detokenizer():
    expected = {"[[plan", "]]", "Plan:", "Answer:", "Reply:", "<note>", "</note>", "<out>", "</out>"}
    assert set(Full.special_tokens) == expected
