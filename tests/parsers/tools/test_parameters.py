"""What all formats with tagged parameters share."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.kimi_k3 import KimiK3ToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.minimax_m3 import MiniMaxM3ToolParser
from vllm_mlx_parsers.tools.parameters import ParameterParser
from vllm_mlx_parsers.tools.poolside_v1 import PoolsideV1ToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser
from vllm_mlx_parsers.tools.step3 import Step3ToolParser
from vllm_mlx_parsers.tools.step3p5 import Step3p5ToolParser

PARSERS: list[type[ParameterParser]] = [
    DeepSeekV32ToolParser,
    GLMToolParser,
    KimiK3ToolParser,
    MiniMaxM2ToolParser,
    MiniMaxM3ToolParser,
    PoolsideV1ToolParser,
    Qwen3CoderToolParser,
    SeedOSSToolParser,
    Step3ToolParser,
    Step3p5ToolParser,
]
TYPES = [{"type": "string"}, {"type": ["string", "null"]}, {"type": ["string", "integer"]}, {}]


def weather(city: object) -> Tool:
    return Tool("get_weather", parameters={"type": "object", "properties": {"city": city}})


@pytest.mark.parametrize("parser", PARSERS)
def test_the_sample_is_a_call(run, width, parser):
    folded = fold(run(parser(ParserContext(tools=[weather({"type": "string"})])), parser.sample, width))
    assert folded.calls == [("get_weather", {"city": "Paris"})]
    assert folded.content == ""


@pytest.mark.parametrize("city", TYPES)
@pytest.mark.parametrize("value", ["a", "5", "null", "a\nb", 'say "hi" \\ {[<b>]}', "北京 🎉", "nullo", "a </b", " x "])
@pytest.mark.parametrize("parser", PARSERS)
def test_a_value_is_the_same_at_every_cut(run, parser, city, value):
    text = parser.sample.replace("Paris", value)
    results = [fold(run(parser(ParserContext(tools=[weather(city)])), text, width)) for width in (10_000, 1, 2, 3, 7)]
    assert all(result == results[0] for result in results)
    ((name, arguments),) = results[0].calls
    assert name == "get_weather"
    if city == {"type": "string"}:
        assert arguments == {"city": value}


@pytest.mark.parametrize("city", TYPES)
@pytest.mark.parametrize(
    "piece", ["word ", "<", "</", "\n", " ", '"', "null", "[", "|", "</parameter> x", "]<]minimax[>[ "]
)
@pytest.mark.parametrize("parser", PARSERS)
def test_no_more_is_read_twice_than_the_beginning_of_a_marker(parser, piece, city):
    before, _ = parser.sample.split("Paris")
    for start in ("", before):
        stream = parser(ParserContext(tools=[weather(city)]))
        stream.feed(Chunk(start))
        for char in piece * 100:
            stream.feed(Chunk(char))
            assert len(stream.text) - stream.pos < 64


@pytest.mark.parametrize("parser", PARSERS)
def test_a_long_text_value_comes_out_while_it_comes_in(parser):
    before, _ = parser.sample.split("Paris")
    stream = parser(ParserContext(tools=[weather({"type": ["string", "null"]})]))
    stream.feed(Chunk(before))
    for _ in range(100):
        events = list(stream.feed(Chunk("words and words ")))
    assert "".join(getattr(event, "json", "") for event in events) == "words and words "


@pytest.mark.parametrize("parser", PARSERS)
def test_a_call_in_a_code_fence_is_text_where_its_markers_are_text(parser):
    text = f"```\n{parser.sample}\n```"
    folded = fold(parser(ParserContext(tools=[weather({"type": "string"})])).parse(text))
    assert (folded.content, list(folded.calls)) == (text, []) or not parser.fences
