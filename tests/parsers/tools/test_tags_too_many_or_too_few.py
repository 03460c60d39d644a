"""Opening and closing markers that come twice, and closing ones that are missing: what one format forgives, all do."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.tools.cohere import CohereToolParser
from vllm_mlx_parsers.tools.deepseek_v3 import DeepSeekV3ToolParser
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser
from vllm_mlx_parsers.tools.functionary import FunctionaryToolParser
from vllm_mlx_parsers.tools.functiongemma import FunctionGemmaToolParser
from vllm_mlx_parsers.tools.gemma4 import Gemma4ToolParser
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser
from vllm_mlx_parsers.tools.hunyuan import HunyuanToolParser
from vllm_mlx_parsers.tools.jamba import JambaToolParser
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser
from vllm_mlx_parsers.tools.longcat import LongCatToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.minimax_m3 import MiniMaxM3ToolParser
from vllm_mlx_parsers.tools.mistral import MistralToolParser
from vllm_mlx_parsers.tools.nemotron import NemotronToolParser
from vllm_mlx_parsers.tools.phi4_mini import Phi4MiniToolParser
from vllm_mlx_parsers.tools.poolside_v1 import PoolsideV1ToolParser
from vllm_mlx_parsers.tools.pythonic import PythonicToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser
from vllm_mlx_parsers.tools.step3 import Step3ToolParser

WEATHER = Tool("get_weather", parameters={"properties": {"city": {"type": "string"}}})
READ = Tool("read", parameters={"properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}})
PARIS = ("get_weather", {"city": "Paris"})
HY3 = "<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>"

DOUBLED = [
    (CohereToolParser, "<|END_ACTION|>"),
    (DeepSeekV3ToolParser, "<｜tool▁calls▁begin｜>"),
    (DeepSeekV3ToolParser, "<｜tool▁call▁begin｜>"),
    (DeepSeekV3ToolParser, "<｜tool▁calls▁end｜>"),
    (DeepSeekV3ToolParser, "```<"),
    (DeepSeekV32ToolParser, "<｜DSML｜function_calls>"),
    (DeepSeekV32ToolParser, "</｜DSML｜invoke>"),
    (DeepSeekV32ToolParser, "</｜DSML｜function_calls>"),
    (FunctionaryToolParser, "</function>"),
    (FunctionGemmaToolParser, "<start_function_call>"),
    (FunctionGemmaToolParser, "<end_function_call>"),
    (Gemma4ToolParser, "<|tool_call>"),
    (Gemma4ToolParser, "<tool_call|>"),
    (GLMToolParser, "<tool_call>"),
    (GLMToolParser, "</arg_value>"),
    (GLMToolParser, "</tool_call>"),
    (HermesToolParser, "<tool_call>"),
    (HermesToolParser, "</tool_call>"),
    (HunyuanToolParser, "<tool_calls>"),
    (HunyuanToolParser, "</tool_calls>"),
    (JambaToolParser, "</tool_calls>"),
    (KimiK2ToolParser, "<|tool_calls_section_begin|>"),
    (KimiK2ToolParser, "<|tool_call_begin|>"),
    (KimiK2ToolParser, "<|tool_calls_section_end|>"),
    (LongCatToolParser, "</longcat_tool_call>"),
    (MiniMaxM2ToolParser, "<minimax:tool_call>"),
    (MiniMaxM2ToolParser, "</invoke>"),
    (MiniMaxM2ToolParser, "</minimax:tool_call>"),
    (MistralToolParser, "[TOOL_CALLS]"),
    (NemotronToolParser, "</TOOLCALL>"),
    (PythonicToolParser, "<|tool_call_end|>"),
    (Qwen3CoderToolParser, "<tool_call>"),
    (Qwen3CoderToolParser, "</function>"),
    (Qwen3CoderToolParser, "</tool_call>"),
    (SeedOSSToolParser, "</seed:tool_call>"),
    (Step3ToolParser, "<｜tool_calls_begin｜>"),
    (Step3ToolParser, "</steptml:invoke>"),
    (Step3ToolParser, "<｜tool_call_end｜>"),
    (Step3ToolParser, "<｜tool_calls_end｜>"),
]
SAMPLES = {
    FunctionaryToolParser: '<function=get_weather>{"city": "Paris"}</function>',
    PythonicToolParser: "<|tool_call_start|>[get_weather(city='Paris')]<|tool_call_end|>",
}


@pytest.fixture
def read(run, width):
    def read_calls(parser, text):
        folded = fold(run(parser(ParserContext(tools=[WEATHER, READ])), text, width))
        return folded.content, folded.calls

    return read_calls


@pytest.mark.parametrize(("parser", "marker"), DOUBLED)
@pytest.mark.parametrize("between", ["", "\n"])
def test_a_marker_that_comes_twice_does_no_harm(read, parser, marker, between):
    sample = SAMPLES.get(parser, parser.sample)
    assert marker in sample
    doubled = marker.rstrip("<") + between + marker
    assert read(parser, f"Look.\n{sample.replace(marker, doubled)}") == ("Look.", [PARIS])


@pytest.mark.parametrize("tag", ["<tool_calls>", "<tool_call>", "</tool_call>", "</tool_calls>"])
def test_tags_around_tagged_calls_of_hunyuan_may_come_twice(read, tag):
    assert read(HunyuanToolParser, f"<tool_calls>\n{HY3}\n</tool_calls>".replace(tag, tag * 2)) == ("", [PARIS])


def test_a_closing_marker_behind_text_is_part_of_the_text(read):
    call = HermesToolParser.sample
    assert read(HermesToolParser, f"{call}\nIt ends with </tool_call> there.") == (
        "It ends with </tool_call> there.",
        [PARIS],
    )


GLM = "<arg_key>path</arg_key><arg_value>a<arg_key>limit</arg_key><arg_value>5</arg_value></tool_call>"


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (GLMToolParser, f"<tool_call>read\n{GLM}"),
        (PoolsideV1ToolParser, f"<tool_call>read{GLM}"),
        (HunyuanToolParser, f"<tool_calls><tool_call>read<tool_sep>{GLM}</tool_calls>"),
        (SeedOSSToolParser, "<function=read><parameter=path>a<parameter=limit>5</parameter></function>"),
    ],
)
def test_the_next_parameter_makes_up_for_a_missing_closing_tag_if_it_is_declared(read, parser, text):
    assert read(parser, text) == ("", [("read", {"path": "a", "limit": 5})])


@pytest.mark.parametrize("mention", ["<arg_key>other</arg_key><arg_value>", "<arg_key>limit</arg_key> is a number"])
def test_a_key_that_is_not_the_next_parameter_is_part_of_the_value(read, mention):
    values = f"<arg_key>path</arg_key>\n<arg_value>{mention}</arg_value>\n"
    for parser, text in (
        (GLMToolParser, f"<tool_call>read\n{values}</tool_call>"),
        (HunyuanToolParser, f"<tool_calls><tool_call>read<tool_sep>{values}</tool_call></tool_calls>"),
    ):
        assert read(parser, text) == ("", [("read", {"path": mention})])


def test_the_end_of_a_block_of_minimax_m3_makes_up_for_that_of_a_call(read):
    text = MiniMaxM3ToolParser.sample.replace("]<]minimax[>[</invoke>\n", "")
    assert read(MiniMaxM3ToolParser, text) == ("", [PARIS])


def test_a_code_fence_that_only_closes_is_dropped_with_the_markers_behind_it(read):
    assert read(DeepSeekV3ToolParser, DeepSeekV3ToolParser.sample.replace("```json\n", "")) == ("", [PARIS])


@pytest.mark.parametrize("space", [" ", "\n"])
def test_space_before_the_list_of_phi_is_allowed_and_the_word_alone_is_text(read, space):
    sample = Phi4MiniToolParser.sample.replace("[", f"{space}[", 1)
    assert read(Phi4MiniToolParser, sample) == ("", [PARIS])
    for text in ("Use functools", "Use functools [as a module].", "functools\n[1]"):
        assert read(Phi4MiniToolParser, text) == (text, [])


def test_a_list_of_python_calls_may_lack_its_opening_bracket(read):
    text = "<|tool_call_start|>get_weather(city='Paris')]<|tool_call_end|>"
    assert read(PythonicToolParser, text) == ("", [PARIS])
