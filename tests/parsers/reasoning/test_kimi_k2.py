from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.kimi_k2 import KimiK2ReasoningParser


class TestKimiK2Conforms(ReasoningParserSuite):
    parser = KimiK2ReasoningParser
    samples = (
        ReasoningSample("<think>plan it</think>The answer.", "plan it", "The answer."),
        ReasoningSample("<think></think>Hi", "", "Hi"),
        ReasoningSample("I am Kimi.", "", "I am Kimi."),
        ReasoningSample("<think>a<|tool_calls_section_begin|>", "a<|tool_calls_section_begin|>", ""),
    )
