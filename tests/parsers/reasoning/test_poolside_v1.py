from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.poolside_v1 import PoolsideV1ReasoningParser


class TestPoolsideV1Conforms(ReasoningParserSuite):
    parser = PoolsideV1ReasoningParser
    samples = (
        ReasoningSample("plan it</think>The answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("plan it</think>The answer.", "plan it", "The answer."),
        ReasoningSample("<think> plan it </think>\n<tool_call>f</tool_call>", "plan it", "<tool_call>f</tool_call>"),
        ReasoningSample("</think>Hi\nyou", "", "Hi\nyou", thinking_open=True),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )

    def context(self, sample):
        return ParserContext(thinking_off=True) if sample is None else super().context(sample)
