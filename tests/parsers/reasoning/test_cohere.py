from __future__ import annotations

from vllm_mlx_core.api import Chunk, ParserContext
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.reasoning.cohere import CohereReasoningParser
from vllm_mlx_parsers.tools.cohere import CohereToolParser


class TestCohereConforms(ReasoningParserSuite):
    parser = CohereReasoningParser
    extra_markers = ("<co>", "</co: 0:[1]>")
    marker_pattern = r"</?co:[\d ,:\[\]]*>"
    samples = (
        ReasoningSample("<|START_THINKING|>plan<|END_THINKING|><|START_RESPONSE|>Hi<|END_RESPONSE|>", "plan", "Hi"),
        ReasoningSample("plan<|END_THINKING|><|START_TEXT|>\nHi\n<|END_TEXT|>", "plan", "Hi", thinking_open=True),
        ReasoningSample(
            "<|START_RESPONSE|>It is <co>sunny</co: 0:[1]>.<|END_RESPONSE|>", "", "It is sunny.", thinking_off=True
        ),
        ReasoningSample("<|END_THINKING|><|START_RESPONSE|>Hi", "", "Hi", thinking_open=True),
        ReasoningSample("<|END_THINKING|>more<|END_THINKING|>Hi", "more", "Hi", thinking_open=True),
        ReasoningSample(
            "<|START_THINKING|>p<|END_THINKING|><|START_ACTION|>[]<|END_ACTION|>",
            "p",
            "<|START_ACTION|>[]<|END_ACTION|>",
        ),
        ReasoningSample("<|START_RESPONSE|>a < b <|END_RESPONSE|>", "", "a < b"),
        ReasoningSample("Hi <c", "", "Hi <c"),
    )


def test_an_answer_behind_an_empty_block_streams():
    stream = CohereReasoningParser(ParserContext(thinking_open=True))
    list(stream.feed(Chunk("<|END_THINKING|><|START_RESPONSE|>")))
    assert fold(stream.feed(Chunk("Hi"))).content == "Hi"


def test_markup_that_was_taken_away_once_leaves_nothing_to_take_away():
    text = "<|START_RESPONSE|>It is <co>sunny</co: 0:[1]>.<|END_RESPONSE|>"
    once = fold(CohereReasoningParser(ParserContext()).parse(text)).content
    assert fold(CohereToolParser(ParserContext()).parse(once)).content == once == "It is sunny."
