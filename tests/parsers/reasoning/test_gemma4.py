from __future__ import annotations

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.gemma4 import Gemma4ReasoningParser


class TestGemma4Conforms(ReasoningParserSuite):
    parser = Gemma4ReasoningParser
    extra_markers = ("<|channel>thought",)
    samples = (
        ReasoningSample("<|channel>thought\nplan<channel|>Hi", "plan", "Hi"),
        ReasoningSample("<|channel>thought\nplan\n<channel|>\n\n  Hi", "plan", "  Hi"),
        ReasoningSample("<|channel>thought\n<channel|>Hi", "", "Hi"),
        ReasoningSample("<|channel>thought<channel|>", "", ""),
        ReasoningSample("<|channel>draft\nplan<channel|>Hi", "draft\nplan", "Hi"),
        ReasoningSample("<|channel>thought\nplan", "plan", ""),
        ReasoningSample("plan<channel|>Hi", "plan", "Hi", thinking_open=True),
        ReasoningSample("thought\n<channel|> is the end", "", "thought\n<channel|> is the end", literal=True),
        ReasoningSample("Hi", "", "Hi", thinking_off=True),
    )


CALL = "<|tool_call>call:f{}<tool_call|>"


def test_the_thought_channel_does_not_leak_and_an_empty_one_leaves_nothing(run, width):
    for text, expected in (
        ("<|channel>thought\nplan<channel|>Hi", ("plan", "Hi")),
        ("<|channel>thought\n<channel|>Hi", ("", "Hi")),
        (
            "<|channel>thought\nplan<channel|><|tool_call>call:f{}<tool_call|>",
            ("plan", "<|tool_call>call:f{}<tool_call|>"),
        ),
    ):
        folded = fold(run(Gemma4ReasoningParser(ParserContext()), text, width))
        assert (folded.reasoning, folded.content) == expected


def test_the_name_of_the_channel_may_stand_in_the_prompt():
    assert Gemma4ReasoningParser.thinking_in_prompt("<|turn>model\n<|channel>thought\n") == (True, False)
