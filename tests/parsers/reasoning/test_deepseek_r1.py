from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.deepseek_r1 import DeepSeekR1ReasoningParser


class TestDeepSeekR1Conforms(ReasoningParserSuite):
    parser = DeepSeekR1ReasoningParser
    samples = (
        ReasoningSample("plan it\n</think>\n\nThe answer.", "plan it", "The answer."),
        ReasoningSample("<think>\nplan it\n</think>\n\nThe answer.", "plan it", "The answer."),
        ReasoningSample("only thoughts", "only thoughts", ""),
        ReasoningSample("</think>\n\nHi", "", "Hi"),
        ReasoningSample("Hello.", "", "Hello.", thinking_off=True),
        ReasoningSample("a < b </think>\n    code", "a < b", "    code", thinking_open=True),
    )

    def context(self, sample):
        return ParserContext(thinking_off=True) if sample is None else super().context(sample)


def test_text_before_a_closing_tag_is_reasoning_even_if_nothing_opened_it(run, width):
    folded = fold(run(DeepSeekR1ReasoningParser(ParserContext()), "plan it</think>Hi", width))
    assert (folded.reasoning, folded.content) == ("plan it", "Hi")


def test_after_the_results_of_tools_the_model_goes_on_with_its_answer():
    for end in ("<｜tool▁outputs▁end｜>", "<｜tool▁output▁end｜>\n"):
        assert DeepSeekR1ReasoningParser.thinking_in_prompt(f"<｜User｜>Hi{end}") == (False, True)
