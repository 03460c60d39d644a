from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser

QUOTED = "Use the </think> tag and <think> too."


class TestQwen3Conforms(ReasoningParserSuite):
    parser = Qwen3ReasoningParser
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


@pytest.mark.parametrize("held", ["<", "<th", "</think", "\n", " <think"])
def test_the_beginning_of_a_tag_at_the_end_is_kept_where_it_belongs(run, width, held):
    assert fold(run(Qwen3ReasoningParser(ParserContext()), held, width)).content == held
    opened = Qwen3ReasoningParser(ParserContext(thinking_open=True))
    assert fold(run(opened, held, width)).reasoning == held.strip()
