from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.hunyuan import HunyuanReasoningParser


class TestHunyuanConforms(ReasoningParserSuite):
    parser = HunyuanReasoningParser
    samples = (
        ReasoningSample("<think>\nplan\n</think>\n<answer>\nHi\n</answer>", "plan", "Hi"),
        ReasoningSample("<think>\n\n</think>\n<answer>\nHi\n</answer>", "", "Hi"),
        ReasoningSample("<answer>\nHi\n\nyou\n</answer>", "", "Hi\n\nyou", thinking_off=True),
        ReasoningSample(
            "<think>plan</think>\n<answer>\nOn it.\n<tool_calls>[]</tool_calls>\n</answer>",
            "plan",
            "On it.\n<tool_calls>[]</tool_calls>",
        ),
        ReasoningSample("<think>plan</think>\n<answer>\nthe </answer> tag", "plan", "the </answer> tag", literal=True),
        ReasoningSample("<think>plan</think>\nHi", "plan", "Hi"),
        ReasoningSample(
            "<think:opensource>plan </think> x</think:opensource>Hi", "plan </think> x", "Hi", literal=True
        ),
        ReasoningSample("plan</think:opensource>Hi", "plan", "Hi", thinking_open=True),
        ReasoningSample("Hi <answer>", "", "Hi <answer>", literal=True),
    )
