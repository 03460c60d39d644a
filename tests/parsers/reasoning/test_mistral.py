from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.mistral import MistralReasoningParser


class TestMistralConforms(ReasoningParserSuite):
    parser = MistralReasoningParser
    samples = (
        ReasoningSample("[THINK]plan it[/THINK]The answer.", "plan it", "The answer."),
        ReasoningSample(
            "[THINK]a [1] and <think>[/THINK]\n\nHi [THINK]", "a [1] and <think>", "Hi [THINK]", literal=True
        ),
        ReasoningSample("[THINK]plan[/THINK][TOOL_CALLS]f[ARGS]{}", "plan", "[TOOL_CALLS]f[ARGS]{}"),
        ReasoningSample("[1, 2] is a list", "", "[1, 2] is a list"),
        ReasoningSample("plan[/THINK]Hi", "plan", "Hi", thinking_open=True),
    )
