"""What models get wrong in the formats with JSON arguments, and what is made of it."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing.events import Folded, fold
from vllm_mlx_parsers.tools.cohere import CohereToolParser
from vllm_mlx_parsers.tools.deepseek_v3 import DeepSeekV3ToolParser
from vllm_mlx_parsers.tools.deepseek_v31 import DeepSeekV31ToolParser
from vllm_mlx_parsers.tools.functionary import FunctionaryToolParser
from vllm_mlx_parsers.tools.harmony import HarmonyToolParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser
from vllm_mlx_parsers.tools.llama3_json import Llama3JSONToolParser
from vllm_mlx_parsers.tools.mistral import MistralToolParser
from vllm_mlx_parsers.tools.nemotron import NemotronToolParser
from vllm_mlx_parsers.tools.phi4_mini import Phi4MiniToolParser
from vllm_mlx_parsers.tools.raw_json import JSONToolParser

CALL = '{"name": "f", "arguments": {"a": 1}}'
F = ("f", {"a": 1})


def read(run, width, parser, text) -> Folded:
    return fold(run(parser(ParserContext(tools=(Tool("f"),))), text, width))


def made(*calls, content="") -> Folded:
    return Folded(content, "", list(calls), [])


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (HermesToolParser, '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>'),
        (HermesToolParser, '<tool_call>\n{"name": "f", "arguments": {"a": 1\n</tool_call>'),
        (HermesToolParser, '<tool_call>\n{"arguments": {"a": 1}, "name": "f"\n</tool_call>'),
        (Llama3JSONToolParser, '{"name": "f", "parameters": {"a": 1}<|eot_id|>'),
        (Llama3JSONToolParser, '<function=f>{"a": 1</function>'),
        (DeepSeekV31ToolParser, '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1<｜tool▁call▁end｜>'),
        (KimiK2ToolParser, '<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1<|tool_call_end|>'),
        (HarmonyToolParser, '<|channel|>commentary to=functions.f<|message|>{"a": 1<|call|>'),
        (Phi4MiniToolParser, 'functools[{"name": "f", "arguments": {"a": 1}]'),
        (CohereToolParser, '<|START_ACTION|>[{"tool_name": "f", "parameters": {"a": 1}]<|END_ACTION|>'),
        (JSONToolParser, '[{"name": "f", "arguments": {"a": 1}]'),
    ],
)
def test_brackets_that_are_missing_before_a_closing_marker_or_the_end_of_a_list_are_added(run, width, parser, text):
    assert read(run, width, parser, text) == made(F)


@pytest.mark.parametrize("separator", ["\n", ""])
def test_a_brace_that_is_missing_before_the_next_call_is_added(run, width, separator):
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": 1}}{separator}<tool_call>{CALL}</tool_call>'
    assert read(run, width, HermesToolParser, text) == made(F, F)
    text = f'[TOOL_CALLS]f[ARGS]{{"a": 1{separator}[TOOL_CALLS]f[ARGS]{{"a": 1}}'
    assert read(run, width, MistralToolParser, text) == made(F, F)


@pytest.mark.parametrize("separator", [", ", ",\n    ", "\n", "; "])
def test_a_brace_that_is_missing_before_the_next_call_of_a_list_is_added(run, width, separator):
    open_call, open_action = '{"name": "f", "arguments": {"a": 1}', '{"tool_name": "f", "parameters": {"a": 1}'
    for parser, text in (
        (NemotronToolParser, f"<TOOLCALL>[{open_call}{separator}{CALL}]</TOOLCALL>"),
        (MistralToolParser, f"[TOOL_CALLS] [{open_call}{separator}{CALL}]"),
        (Phi4MiniToolParser, f"functools[{open_call}{separator}{CALL}]"),
        (CohereToolParser, f"<|START_ACTION|>[{open_action}{separator}{open_action}}}]<|END_ACTION|>"),
        (HermesToolParser, f"<tool_call>\n{open_call}{separator}{CALL}\n</tool_call>"),
        (JSONToolParser, f"[{open_call}{separator}{CALL}]"),
        (Llama3JSONToolParser, f"<|python_tag|>{open_call}{separator}{CALL}"),
    ):
        assert read(run, width, parser, text) == made(F, F), text


def test_a_brace_that_is_missing_inside_a_code_fence_is_added_before_its_end(run, width):
    text = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1\n```<｜tool▁call▁end｜>'
    assert read(run, width, DeepSeekV3ToolParser, text) == made(F)


def test_brackets_are_not_added_where_a_value_is_not_complete_or_the_stream_ends(run, width):
    for text in (
        '<tool_call>{"name": "f", "arguments": {"a": </tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1, </tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": "x}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1}',
    ):
        assert read(run, width, HermesToolParser, text).calls == []


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (HermesToolParser, f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>"),
        (HermesToolParser, f"<tool_call>\n```\n[{CALL}]\n```"),
        (HermesToolParser, f"<tool_call>\n<tool_call>\n{CALL}\n</tool_call>\n</tool_call>\n"),
        (HermesToolParser, "<tool_call>{'name': 'f', 'arguments': {'a': 1}}</tool_call>"),
        (HermesToolParser, '<tool_call>{{"name": "f", "arguments": {"a": 1}}}</tool_call>'),
        (HermesToolParser, '<tool_call>{"name": "f", "args": {"a": 1}}</tool_call>'),
        (HermesToolParser, f'<tool_call>{{"type": "function", "function": {CALL}, "id": "x"}}</tool_call>'),
        (HermesToolParser, '<tool_call>{"function": "f", "arguments": {"a": 1}}</tool_call>'),
        (HermesToolParser, r'<tool_call>{"function": {"name": "f", "arguments": "{\"a\": 1}"}}</tool_call>'),
        (JSONToolParser, f'{{"type": "function", "function": {CALL}}}'),
        (Llama3JSONToolParser, '{"type": "function", "function": "f", "parameters": {"a": 1}}'),
        (MistralToolParser, '[TOOL_CALLS]f [ARGS] ```json\n{"a": 1}\n```'),
        (HarmonyToolParser, '<|channel|>commentary to=functions.f<|message|>```json\n{"a": 1}\n```<|call|>'),
        (NemotronToolParser, '<TOOLCALL>[{{"name": "f", "arguments": {"a": 1}}}]</TOOLCALL>'),
    ],
)
def test_a_call_in_another_dress_is_a_call(run, width, parser, text):
    assert read(run, width, parser, text) == made(F)


@pytest.mark.parametrize("text", ["[]", "null", '""', "[ ]"])
def test_arguments_that_say_nothing_are_an_empty_object(run, width, text):
    assert read(run, width, HermesToolParser, f'<tool_call>{{"name": "f", "arguments": {text}}}') == made(("f", {}))
    assert read(run, width, MistralToolParser, f"[TOOL_CALLS]f[ARGS]{text}") == made(("f", {}))


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "function", "function": {"name": "f", "description": "…", "parameters": {}}}',
        '{"function": "f"}',
        '{"function": {"name": "g", "arguments": {}}}',
        '{"name": "f", "input": {"a": 1}}',
    ],
)
def test_without_a_marker_only_what_can_be_nothing_else_is_a_call(run, width, text):
    assert read(run, width, JSONToolParser, text) == made(content=text)


@pytest.mark.parametrize(
    "begun",
    [
        '<tool_call>\n{"name": "f", "argu',
        '<tool_call>\n{"name": "f", "arguments": {"a": ',
        '<tool_call>\n{"name": "f", "arguments": {"a": "un',
        "<tool_call>\n{na",
        "<tool_call>\n",
    ],
)
def test_a_call_that_was_begun_anew_is_made(run, width, begun):
    folded = read(run, width, HermesToolParser, f"{begun}<tool_call>\n{CALL}\n</tool_call>\nDone.")
    assert folded.calls == [F]
    assert folded.content.split() == ([] if begun == "<tool_call>\n" else begun.split()) + ["Done."]


def test_a_broken_call_takes_no_later_call_with_it(run, width):
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": "x}}}}</tool_call>\n<tool_call>{CALL}</tool_call>'
    folded = read(run, width, HermesToolParser, text)
    assert folded.calls == [F]
    assert folded.content == text.partition("\n")[0]


@pytest.mark.parametrize(
    ("parser", "call"),
    [
        (HermesToolParser, f"<tool_call>{CALL}</tool_call>"),
        (MistralToolParser, '[TOOL_CALLS]f[ARGS]{"a": 1}'),
        (FunctionaryToolParser, '<function=f>{"a": 1}'),
        (JSONToolParser, f"```json\n{CALL}\n```"),
    ],
)
@pytest.mark.parametrize("after", ["`ls` did it", "```py\nx\n```"])
def test_code_after_a_call_keeps_its_backticks(run, width, parser, call, after):
    assert read(run, width, parser, f"{call}\n{after}") == made(F, content=after)


def test_backticks_inside_a_code_block_do_not_hide_the_call_after_it(run, width):
    code = "```py\nprint('```')\n```"
    assert read(run, width, HermesToolParser, f"{code}\n<tool_call>{CALL}</tool_call>") == made(F, content=code)


def test_the_closing_fence_of_arguments_may_be_missing(run, width):
    text = '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}<｜tool▁call▁end｜>'
    assert read(run, width, DeepSeekV3ToolParser, text) == made(F)


@pytest.mark.parametrize("wrapped", [True, False])
def test_objects_nested_a_hundred_thousand_deep_raise_nothing(wrapped):
    deep = '{"function":' * 100_000 if wrapped else f'{{"name": "f", "arguments": {{"a": {"[" * 100_000}'
    for parser in (HermesToolParser, JSONToolParser, Llama3JSONToolParser):
        events = list(parser(ParserContext(tools=(Tool("f"),))).parse(f"<tool_call>{deep}"))
        assert fold(events).calls == []
