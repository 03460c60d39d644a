from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.step3p5 import Step3p5ReasoningParser


class TestStep3p5Conforms(ReasoningParserSuite):
    parser = Step3p5ReasoningParser
    samples = (
        ReasoningSample("plan it\n</think>\nThe answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("plan it\n</think>\nThe answer.", "plan it", "The answer."),
        ReasoningSample("plan\n</think>\n\n<tool_call>", "plan", "<tool_call>", thinking_open=True),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )

    def context(self, sample):
        return ParserContext(thinking_off=True) if sample is None else super().context(sample)
