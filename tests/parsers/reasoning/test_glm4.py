from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.glm4 import GLM4ReasoningParser


class TestGLM4Conforms(ReasoningParserSuite):
    parser = GLM4ReasoningParser
    samples = (
        ReasoningSample("\n<think>plan it</think>\nThe answer.", "plan it", "The answer."),
        ReasoningSample("plan it</think>The answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("</think>Hi\nyou", "", "Hi\nyou", thinking_open=True),
        ReasoningSample("</think>plan </think>Hi", "plan", "Hi", thinking_open=True),
        ReasoningSample("<tool_call>f</tool_call>", "", "<tool_call>f</tool_call>"),
        ReasoningSample("Hi </think>", "", "Hi </think>", thinking_off=True, literal=True),
    )
