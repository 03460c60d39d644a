from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.deepseek_v4 import DeepSeekV4ReasoningParser


class TestDeepSeekV4Conforms(ReasoningParserSuite):
    parser = DeepSeekV4ReasoningParser
    samples = (
        ReasoningSample("plan it</think>The answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("<think>plan it</think>The answer.", "plan it", "The answer."),
        ReasoningSample("</think>Hi\nthere </think>", "", "Hi\nthere </think>", thinking_open=True, literal=True),
        ReasoningSample("The answer.", "", "The answer."),
        ReasoningSample("The </think> tag.", "", "The </think> tag.", thinking_off=True, literal=True),
    )
