from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.minimax_m2 import MiniMaxM2ReasoningParser


class TestMiniMaxM2Conforms(ReasoningParserSuite):
    parser = MiniMaxM2ReasoningParser
    samples = (
        ReasoningSample("plan it\n</think>\n\nThe answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("plan it\n</think>\n\nThe answer.", "plan it", "The answer."),
        ReasoningSample("<think>\nplan it\n</think>\n\n<minimax:tool_call>", "plan it", "<minimax:tool_call>"),
        ReasoningSample("only thoughts", "only thoughts", ""),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )

    def context(self, sample):
        return ParserContext(thinking_off=True) if sample is None else super().context(sample)
