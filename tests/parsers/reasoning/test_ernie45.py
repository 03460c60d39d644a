from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.ernie45 import Ernie45ReasoningParser


class TestErnie45Conforms(ReasoningParserSuite):
    parser = Ernie45ReasoningParser
    samples = (
        ReasoningSample("plan\n</think>\n\n<response>\nHi\n</response>\n", "plan", "Hi", thinking_open=True),
        ReasoningSample("<think>\nplan\n</think>\n\n<response>\nHi\n</response>", "plan", "Hi"),
        ReasoningSample("plan</think>Hi", "plan", "Hi", thinking_open=True),
        ReasoningSample(
            "plan</think>\n<response>Hi <response>x</response> you</response>",
            "plan",
            "Hi <response>x</response> you",
            thinking_open=True,
            literal=True,
        ),
        ReasoningSample("<response>\nHi\n</response>", "", "Hi", thinking_off=True),
        ReasoningSample(
            "plan</think>\n<response>\nI look.\n</response>\n<tool_call>",
            "plan",
            "I look.\n<tool_call>",
            thinking_open=True,
        ),
        ReasoningSample("Hi </response>", "", "Hi </response>", literal=True),
        ReasoningSample("</think><response>Hi</response>", "", "Hi", thinking_open=True),
    )
