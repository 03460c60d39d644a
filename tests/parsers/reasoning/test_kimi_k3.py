from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.kimi_k3 import KimiK3ReasoningParser


class TestKimiK3Conforms(ReasoningParserSuite):
    parser = KimiK3ReasoningParser
    marker_pattern = r"<\|(?:open|close)\|>[a-z]*(?:<\|sep\|>|<(?:\|(?:s(?:e(?:p\|?)?)?)?)?\Z)?"
    samples = (
        ReasoningSample(
            "plan<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|><|close|>message<|sep|>",
            "plan",
            "Hi",
            thinking_open=True,
        ),
        ReasoningSample("<|open|>think<|sep|>plan<|close|>think<|sep|>\nHi", "plan", "Hi"),
        ReasoningSample("Hi<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>", "", "Hi", thinking_off=True),
        ReasoningSample("<|close|>think<|sep|><|open|>response<|sep|>Hi", "", "Hi", thinking_open=True),
        ReasoningSample("<|close|>think<|sep|>Hi<|close|>response<|sep|>", "", "Hi", thinking_open=True),
        ReasoningSample(
            "a<|close|>think<|sep|><|open|>tools<|sep|>b",
            "a",
            "<|open|>tools<|sep|>b",
            thinking_open=True,
            literal=True,
        ),
    )


def test_the_end_of_a_message_never_reaches_the_client(run, width):
    text = "Hi<|close|>response<|sep|><|close|>message<|sep|>"
    for context in (ParserContext(), ParserContext(thinking_off=True)):
        assert fold(run(KimiK3ReasoningParser(context), text, width)).content == "Hi"


def test_a_prompt_that_opens_the_response_switches_thinking_off():
    opened = '<|open|>message role="assistant"<|sep|><|open|>'
    assert KimiK3ReasoningParser.thinking_in_prompt(f"{opened}response<|sep|>") == (False, True)
    assert KimiK3ReasoningParser.thinking_in_prompt(f"{opened}think<|sep|>") == (True, False)


@pytest.mark.parametrize("tag", ["<|close|>think<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"])
def test_a_tag_that_the_limit_cuts_off_behind_its_special_token_is_not_shown(run, width, tag):
    is_thought = "think" in tag
    for length in range(len("<|close|>"), len(tag)):
        folded = fold(run(KimiK3ReasoningParser(ParserContext(thinking_open=is_thought)), f"Hi{tag[:length]}", width))
        assert folded.reasoning + folded.content == "Hi", tag[:length]


def test_a_tag_that_only_begins_like_a_special_token_stays_text(run, width):
    assert fold(run(KimiK3ReasoningParser(ParserContext()), "a <|clo", width)).content == "a <|clo"
