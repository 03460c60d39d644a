from __future__ import annotations

import pytest

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.granite import GraniteReasoningParser


class TestGraniteConforms(ReasoningParserSuite):
    parser = GraniteReasoningParser
    samples = (
        ReasoningSample("<think>plan</think><response>Hi</response>", "plan", "Hi"),
        ReasoningSample("<think>\nplan\n</think>\n<response>\n  Hi\n</response>\n", "plan", "  Hi"),
        ReasoningSample("Here is my thought process: plan Here is my response: Hi", "plan", "Hi"),
        ReasoningSample("Here's my thought process:\nplan\n\nHere's my response:\n\n- Hi", "plan", "- Hi"),
        ReasoningSample("Here is my thought process: plan Here's my response: Hi", "plan", "Hi"),
        ReasoningSample("Here is my thought process: plan", "plan", ""),
        ReasoningSample("Here is my plan: Hi", "", "Here is my plan: Hi"),
        ReasoningSample(
            "Here is my thought process: x", "", "Here is my thought process: x", thinking_off=True, literal=True
        ),
    )


@pytest.mark.parametrize(
    ("system", "is_off"),
    [
        ("You are a helpful AI assistant.", True),
        ("Write your thoughts between <think></think> and write your response between <response></response>.", False),
        ("Write your thoughts after 'Here is my thought process:' and your response after it.", False),
    ],
)
def test_thinking_is_off_where_the_prompt_does_not_say_how_to_think(system, is_off):
    prompt = f"<|start_of_role|>system<|end_of_role|>{system}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"
    assert GraniteReasoningParser.thinking_in_prompt(prompt) == (False, is_off)
