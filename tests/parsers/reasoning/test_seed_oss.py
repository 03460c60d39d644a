from __future__ import annotations

from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.seed_oss import SeedOSSReasoningParser


class TestSeedOSSConforms(ReasoningParserSuite):
    parser = SeedOSSReasoningParser
    samples = (
        ReasoningSample("<seed:think>plan</seed:think>Hi", "plan", "Hi"),
        ReasoningSample(
            "<seed:think>a\n<seed:cot_budget_reflect>used 9</seed:cot_budget_reflect>\nb</seed:think>\nHi",
            "a\nused 9\nb",
            "Hi",
        ),
        ReasoningSample("<seed:think><seed:cot_budget_reflect>none</seed:cot_budget_reflect></seed:think>", "none", ""),
        ReasoningSample("<seed:think>only", "only", ""),
        ReasoningSample("Hi <think>", "", "Hi <think>"),
        ReasoningSample("a</seed:think>\n<seed:tool_call>", "a", "<seed:tool_call>", thinking_open=True),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )


def test_a_budget_of_nothing_switches_thinking_off():
    note = "<seed:cot_budget_reflect>The current thinking budget is 0.</seed:cot_budget_reflect>"
    prompt = f"<seed:bos>assistant\n<seed:think>\n{note}\n</seed:think>"
    assert SeedOSSReasoningParser.thinking_in_prompt(prompt) == (False, True)
