"""What models get wrong in tagged calls, and what is made of it."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.tools.auto import AutoToolParser
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.pythonic import PythonicToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.step3 import Step3ToolParser

READ = Tool("read", parameters={"properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}})
A, B, LIMITED = (("read", values) for values in ({"path": "a"}, {"path": "b"}, {"path": "a", "limit": 5}))
QWEN_A, QWEN_B = (f"<function=read>\n<parameter=path>\n{path}\n</parameter>\n" for path in "ab")
INVOKE_A, INVOKE_B = (f'<invoke name="read">\n<parameter name="path">{path}</parameter>\n' for path in "ab")
GLM_A, GLM_B = (f"<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>{path}</arg_value>\n" for path in "ab")


def block(text):
    return f"<minimax:tool_call>\n{text}</minimax:tool_call>"


def dsml(text):
    return text.replace("</", "</｜DSML｜").replace("<inv", "<｜DSML｜inv").replace("<par", "<｜DSML｜par")


@pytest.fixture
def read(run, width):
    def read_calls(parser, text):
        folded = fold(run(parser(ParserContext(tools=[READ])), text, width))
        return folded.content, folded.calls

    return read_calls


@pytest.mark.parametrize("parser", [Qwen3CoderToolParser, AutoToolParser])
@pytest.mark.parametrize(
    "body",
    [
        '<function name="read">\n<parameter name="path">a</parameter><parameter name="limit">5</parameter></function>',
        "<function=read>\n<parameter name='path'>\na\n</parameter>\n<parameter='limit'>\n5\n</parameter>\n</function>",
        '<function="read">\n<parameter name="path">\na\n<parameter name="limit">\n5\n</function>',
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_names_of_functions_and_parameters_may_be_written_as_attributes(read, parser, body, wrapped):
    assert read(parser, f"<tool_call>\n{body}\n</tool_call>" if wrapped else body) == ("", [LIMITED])


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (Qwen3CoderToolParser, f"<tool_call>\n{QWEN_A}{QWEN_B}</function>\n</tool_call>"),
        (Qwen3CoderToolParser, f"<tool_call>\n{QWEN_A}<tool_call>\n{QWEN_B}</function>\n</tool_call>"),
        (Qwen3CoderToolParser, f"<tool_call>\n{QWEN_A}</tool_call>\n<tool_call>\n{QWEN_B}</tool_call>"),
        (Qwen3CoderToolParser, f"{QWEN_A}{QWEN_B}</function>"),
        (GLMToolParser, f"{GLM_A}{GLM_B}</tool_call>"),
        (MiniMaxM2ToolParser, block(INVOKE_A + INVOKE_B)),
        (MiniMaxM2ToolParser, block(INVOKE_A) + block(INVOKE_B)),
        (DeepSeekV32ToolParser, dsml(f"{INVOKE_A}{INVOKE_B}</function_calls>")),
        (DeepSeekV32ToolParser, dsml(f"<｜DSML｜tool_calls>{INVOKE_A}{INVOKE_B}</tool_calls>")),
        (
            Step3ToolParser,
            "<｜tool_calls_begin｜>"
            + "".join(
                f'<｜tool_call_begin｜><steptml:invoke name="read"><steptml:parameter name="path">{path}'
                "</steptml:parameter><｜tool_call_end｜>"
                for path in "ab"
            )
            + "<｜tool_calls_end｜>",
        ),
    ],
)
def test_the_end_of_a_call_that_is_missing_is_made_up_for_by_the_next_call_or_the_end_of_the_block(read, parser, text):
    assert read(parser, text) == ("", [A, B])
    assert read(parser, f"{text}\nDone.") == ("Done.", [A, B])


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (Qwen3CoderToolParser, f"<tool_call>\n<tool_call>\n{QWEN_A}</function>\n</tool_call>"),
        (Qwen3CoderToolParser, f"<tool_call>\n{QWEN_A}</function>\n</function>\n</tool_call>\n</tool_call>"),
        (GLMToolParser, f"<tool_call>{GLM_A}</tool_call>"),
        (GLMToolParser, f"{GLM_A}</arg_value></tool_call></tool_call>"),
    ],
)
def test_tags_that_come_twice_do_not_reach_the_client(read, parser, text):
    assert read(parser, text) == ("", [A])
    assert read(parser, f"Hi.\n{text}\nDone.") == ("Hi.\nDone.", [A])


@pytest.mark.parametrize(
    "text",
    [
        "<invoke name=read>\n<parameter name=path>a</parameter>\n</invoke>\n",
        "<invoke=read>\n<parameter=path>a</parameter>\n</invoke>\n",
        "<invoke name = \"read\">\n<parameter name= 'path'>a</parameter>\n</invoke>\n",
        '{"name": "read", "arguments": {"path": "a"}}\n',
    ],
)
def test_a_minimax_call_may_lack_quotes_or_be_json(read, text):
    assert read(MiniMaxM2ToolParser, block(text)) == ("", [A])


def test_a_value_that_opens_a_call_and_never_closes_it_is_never_taken_for_complete(read):
    text = f"<tool_call>\n<function=read>\n<parameter=path>\n{QWEN_B}</tool_call>"
    assert read(Qwen3CoderToolParser, text) == ("", [])


@pytest.mark.parametrize("text", ["[read('a'),]", "[read(path=b'a') , ]", "[read(path=Rb'a',),]"])
def test_a_comma_behind_the_last_python_call_and_prefixes_of_strings_are_dropped(read, text):
    assert read(PythonicToolParser, text) == ("", [A])
