"""What holds for every format with tags around the reasoning, whatever the tags are."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, ReasoningDelta, TextDelta
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.reasoning.cohere import CohereReasoningParser
from vllm_mlx_parsers.reasoning.deepseek_r1 import DeepSeekR1ReasoningParser
from vllm_mlx_parsers.reasoning.deepseek_v4 import DeepSeekV4ReasoningParser
from vllm_mlx_parsers.reasoning.ernie45 import Ernie45ReasoningParser
from vllm_mlx_parsers.reasoning.gemma4 import Gemma4ReasoningParser
from vllm_mlx_parsers.reasoning.glm4 import GLM4ReasoningParser
from vllm_mlx_parsers.reasoning.granite import GraniteReasoningParser
from vllm_mlx_parsers.reasoning.hunyuan import HunyuanReasoningParser
from vllm_mlx_parsers.reasoning.kimi_k2 import KimiK2ReasoningParser
from vllm_mlx_parsers.reasoning.kimi_k3 import KimiK3ReasoningParser
from vllm_mlx_parsers.reasoning.minimax_m2 import MiniMaxM2ReasoningParser
from vllm_mlx_parsers.reasoning.minimax_m3 import MiniMaxM3ReasoningParser
from vllm_mlx_parsers.reasoning.mistral import MistralReasoningParser
from vllm_mlx_parsers.reasoning.nemotron import NemotronReasoningParser
from vllm_mlx_parsers.reasoning.poolside_v1 import PoolsideV1ReasoningParser
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.reasoning.seed_oss import SeedOSSReasoningParser
from vllm_mlx_parsers.reasoning.step3p5 import Step3p5ReasoningParser
from vllm_mlx_parsers.reasoning.tagged import TaggedReasoningParser

FORMATS: list[type[TaggedReasoningParser]] = [
    CohereReasoningParser,
    DeepSeekR1ReasoningParser,
    DeepSeekV4ReasoningParser,
    Ernie45ReasoningParser,
    Gemma4ReasoningParser,
    GLM4ReasoningParser,
    GraniteReasoningParser,
    HunyuanReasoningParser,
    KimiK2ReasoningParser,
    KimiK3ReasoningParser,
    MiniMaxM2ReasoningParser,
    MiniMaxM3ReasoningParser,
    MistralReasoningParser,
    NemotronReasoningParser,
    PoolsideV1ReasoningParser,
    Qwen3ReasoningParser,
    SeedOSSReasoningParser,
    Step3p5ReasoningParser,
]
WIDTHS = (1, 2, 3, 5, 7, 13, 10_000)
ASSUMED_OPEN = {
    DeepSeekR1ReasoningParser,
    MiniMaxM2ReasoningParser,
    PoolsideV1ReasoningParser,
    Step3p5ReasoningParser,
}


@pytest.fixture(params=FORMATS, ids=lambda each: each.__name__.removesuffix("ReasoningParser"))
def cls(request):
    return request.param


@pytest.fixture
def split(cls, run):
    """Parse a completion cut at every width, which must make no difference; return reasoning and content."""

    def parse(text, **state):
        results = set()
        for width in WIDTHS:
            folded = fold(run(cls(ParserContext(**state)), text, width))
            results.add((folded.reasoning, folded.content))
        assert len(results) == 1, text
        return results.pop()

    return parse


def test_the_sample_of_the_documentation_is_a_greeting(cls, split):
    assert split(cls.sample) == ("A greeting.", "Hello!")


def test_a_block_opened_in_the_prompt_is_reasoning_up_to_the_closing_tag(cls, split):
    assert split(f"plan it\n{cls.end}\n\nThe answer.", thinking_open=True) == ("plan it", "The answer.")


def test_a_second_opening_tag_is_dropped(cls, split):
    assert split(f"{cls.start}\nplan it{cls.end}\nThe answer.", thinking_open=True) == ("plan it", "The answer.")


def test_a_block_that_the_model_opens_is_reasoning(cls, split):
    assert split(f"\n{cls.start}\nplan it{cls.end}\nThe answer.") == ("plan it", "The answer.")


def test_with_thinking_switched_off_everything_is_the_answer(cls, split):
    for text in ("Hello.", f"{cls.start}Hello.{cls.end}", cls.end, "\n\nHello.\n", ""):
        assert split(text, thinking_off=True) == ("", text)


def test_without_tags_each_family_has_its_own_default(cls, split):
    expected = ("Hello.", "") if cls in ASSUMED_OPEN else ("", "Hello.")
    assert split("Hello.") == expected


def test_a_closing_tag_without_an_opening_one_ends_reasoning_only_where_thinking_counts_as_open(cls, split):
    text = f"plan it{cls.end}\nThe answer."
    assert split(text) == (("plan it", "The answer.") if cls in ASSUMED_OPEN else ("", text))


def test_an_empty_block_gives_no_reasoning(cls, split):
    assert split(f"{cls.start}\n\n{cls.end}\n\nHi") == ("", "Hi")
    assert split(f"{cls.start}{cls.end}Hi") == ("", "Hi")


def test_a_lone_closing_tag_at_the_start_is_dropped(cls, split):
    assert split(f"{cls.end}\n\nHi", thinking_open=True) == ("", "Hi")
    assert split(f"{cls.end}\n\nHi") == ("", "Hi")


def test_thinking_that_goes_on_after_a_lone_closing_tag_is_not_shown_as_the_answer(cls, split):
    text = f"{cls.end}private planning{cls.end}visible"
    assert split(text, thinking_open=True) == ("private planning", "visible")


def test_an_answer_on_the_line_of_a_lone_closing_tag_is_not_lost(cls, split):
    assert split(f"{cls.end}Hi there,\nyou <", thinking_open=True) == ("", "Hi there,\nyou <")


def test_tags_in_the_answer_are_text(cls, split):
    quoted = f"Use the {cls.end} tag and {cls.start} too."
    assert split(f"a{cls.end}\n\n{quoted}", thinking_open=True) == ("a", quoted)
    assert split(f"{cls.start}a{cls.end}{cls.start}b{cls.end}c") == ("a", f"{cls.start}b{cls.end}c")


@pytest.mark.parametrize("quote", ["`", "'", '"'])
def test_a_closing_tag_between_quotes_is_part_of_the_reasoning(cls, split, quote):
    thought = f"the {quote}{cls.end}{quote} tag"
    assert split(f"{cls.start}{thought}{cls.end}\nHi") == (thought, "Hi")
    assert split(f"{cls.start}say {quote}{cls.end}Hi{quote}") == (f"say {quote}", f"Hi{quote}")
    assert split(f"{cls.start}say {quote}{cls.end}") == (f"say {quote}", "")


def test_an_opening_tag_inside_the_reasoning_is_part_of_it(cls, split):
    assert split(f"{cls.start}a {cls.start} b{cls.end}\nc") == (f"a {cls.start} b", "c")


def test_text_before_a_tag_makes_the_tag_text(cls, split):
    text = f"So: {cls.start}x{cls.end}"
    assert split(text, thinking_off=True) == ("", text)
    if cls not in ASSUMED_OPEN:
        assert split(text) == ("", text)


def test_an_unclosed_block_is_reasoning_to_its_end(cls, split):
    assert split(f"{cls.start}\nneed the file \n") == ("need the file", "")
    beginning = cls.end[: len(cls.end) // 3]
    assert split(f"need the file {beginning}", thinking_open=True) == (f"need the file {beginning}", "")


def test_the_indentation_of_the_answer_is_kept(cls, split):
    assert split(f"{cls.start}a{cls.end}\n\n    code\n") == ("a", "    code\n")


def test_white_space_inside_the_reasoning_is_kept(cls, split):
    assert split(f"{cls.start}\n a\n\n  b \n{cls.end}\nc") == ("a\n\n  b", "c")


def test_reasoning_and_answer_stream(cls):
    stream = cls(ParserContext(thinking_open=True))
    pieces = ["\n", "plan", " it", "\n", "now", cls.end[:3], f"{cls.end[3:]}\n", "\n", "The", " answer"]
    assert [list(stream.feed(Chunk(piece))) for piece in pieces] == [
        [],
        [ReasoningDelta("plan")],
        [ReasoningDelta(" it")],
        [],
        [ReasoningDelta("\nnow")],
        [],
        [],
        [],
        [TextDelta("The")],
        [TextDelta(" answer")],
    ]


def test_with_thinking_switched_off_the_answer_streams(cls):
    stream = cls(ParserContext(thinking_off=True))
    assert [list(stream.feed(Chunk(piece))) for piece in ("It", " is")] == [[TextDelta("It")], [TextDelta(" is")]]


def test_where_answers_stand_behind_a_lone_closing_tag_they_are_held_for_one_line_only(cls):
    stream = cls(ParserContext(thinking_open=True))
    list(stream.feed(Chunk(cls.end)))
    assert list(stream.feed(Chunk("Hi"))) == []
    assert fold(stream.feed(Chunk("\n"))).content.startswith("Hi") is cls.inline


def test_a_parser_says_whether_it_is_thinking(cls):
    assert not cls(ParserContext()).thinking
    assert not cls(ParserContext(thinking_off=True)).thinking
    stream = cls(ParserContext(thinking_open=True))
    assert stream.thinking
    said = []
    for piece in ("plan ", cls.end[:2], cls.end[2:], "\nHi", cls.start):
        list(stream.feed(Chunk(piece)))
        said.append(stream.thinking)
    assert said == [True, True, False, False, False]


def test_a_parser_says_that_it_began_to_think(cls):
    for text in (f"{cls.start}\nplan", "plan"):
        stream = cls(ParserContext())
        list(stream.feed(Chunk(text)))
        assert stream.thinking is (text != "plan" or cls in ASSUMED_OPEN)


def test_the_end_of_the_prompt_tells_whether_thinking_is_open_or_off(cls):
    role = "<|assistant|>"
    assert cls.thinking_in_prompt(f"{role}{cls.start}\n") == (True, False)
    assert cls.thinking_in_prompt(f"{role}{cls.start}\n\n{cls.end}\n\n") == (False, True)
    assert cls.thinking_in_prompt(f"{role}{cls.end}") == (False, True)
    assert cls.thinking_in_prompt(f"what is {cls.start}? {role}") == (False, False)
    assert cls.thinking_in_prompt(f"{role}{cls.start}old{cls.end}yes<|user|>more{role}\n") == (False, False)
