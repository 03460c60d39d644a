from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.minimax_m3 import MiniMaxM3ReasoningParser


class TestMiniMaxM3Conforms(ReasoningParserSuite):
    parser = MiniMaxM3ReasoningParser
    samples = (
        ReasoningSample("plan it</mm:think>The answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("<mm:think>plan it</mm:think>The answer.", "plan it", "The answer."),
        ReasoningSample("</mm:think>Hi", "", "Hi"),
        ReasoningSample("<think>x</think>", "", "<think>x</think>"),
    )
