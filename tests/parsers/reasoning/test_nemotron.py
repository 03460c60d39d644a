from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.nemotron import NemotronReasoningParser


class TestNemotronConforms(ReasoningParserSuite):
    parser = NemotronReasoningParser
    samples = (
        ReasoningSample("plan it\n</think>\n\nThe answer.", "plan it", "The answer.", thinking_open=True),
        ReasoningSample("<think>\nplan it\n</think>\n\nThe answer.", "plan it", "The answer."),
        ReasoningSample("The answer.", "", "The answer."),
        ReasoningSample("The answer.", "", "The answer.", thinking_off=True),
    )
