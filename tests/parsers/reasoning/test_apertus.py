from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.apertus import ApertusReasoningParser


class TestApertusConforms(ReasoningParserSuite):
    parser = ApertusReasoningParser
    samples = (
        ReasoningSample(ApertusReasoningParser.sample, "A greeting.", "Hello!"),
        ReasoningSample("<|inner_prefix|>\nplan\n<|inner_suffix|>\n\nHi", "plan", "Hi"),
        ReasoningSample("<|inner_prefix|>only", "only", ""),
        ReasoningSample("Hi <|inner_prefix|>", "", "Hi <|inner_prefix|>", literal=True),
        ReasoningSample("plan<|inner_suffix|>Hi", "plan", "Hi", thinking_open=True),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )
