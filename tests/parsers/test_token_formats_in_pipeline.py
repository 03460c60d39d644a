"""Formats between special tokens, from tokens to events, together with the reasoning parsers of their families."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_mlx_core.api import Event, ParserContext, Tool
from vllm_mlx_core.engine.pipeline import CompletionPipeline
from vllm_mlx_core.testing.events import check_events, fold, join
from vllm_mlx_parsers.reasoning.deepseek_r1 import DeepSeekR1ReasoningParser
from vllm_mlx_parsers.reasoning.kimi_k2 import KimiK2ReasoningParser
from vllm_mlx_parsers.tools.deepseek_v3 import DeepSeekV3ToolParser
from vllm_mlx_parsers.tools.deepseek_v31 import DeepSeekV31ToolParser
from vllm_mlx_parsers.tools.functionary import FunctionaryToolParser
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser

from .completions import MarkerTokenizer

TOOLS = (Tool("get_weather"), Tool("python"))
PARIS = ("get_weather", {"city": "Paris"})
EOS = "<eos>"


CASES: list[tuple[Any, Any, str, str, str, list[Any]]] = [
    (
        DeepSeekR1ReasoningParser,
        DeepSeekV3ToolParser,
        f"<think>Hm.</think>I look.{DeepSeekV3ToolParser.sample}{EOS}",
        "Hm.",
        "I look.",
        [PARIS],
    ),
    (None, DeepSeekV31ToolParser, f"I look.\n{DeepSeekV31ToolParser.sample}{EOS}", "", "I look.", [PARIS]),
    (
        KimiK2ReasoningParser,
        KimiK2ToolParser,
        f"<think>Hm.</think>I look.{KimiK2ToolParser.sample}{EOS}",
        "Hm.",
        "I look.",
        [PARIS],
    ),
    (None, FunctionaryToolParser, FunctionaryToolParser.sample, "", "", [PARIS]),
    (None, FunctionaryToolParser, "all\nUse `ls`<|eot_id|>", "", "Use `ls`", []),
    (None, FunctionaryToolParser, "all\n```\nls\n<|eot_id|>", "", "```\nls\n", []),
    (None, FunctionaryToolParser, "python\nprint(1)<|eot_id|>", "", "", [("python", {"code": "print(1)"})]),
    (None, FunctionaryToolParser, "<|python_tag|>print(1)<|eom_id|>", "", "", [("python", {"code": "print(1)"})]),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize(("reasons", "calls", "text", "reasoning", "content", "expected"), CASES)
def test_reasoning_content_and_calls_come_out_of_the_pipeline(step, reasons, calls, text, reasoning, content, expected):
    tokenizer = MarkerTokenizer(EOS, *calls.special_tokens, *(reasons.special_tokens if reasons else ()))
    context = ParserContext(tokenizer, TOOLS)
    pipeline = CompletionPipeline(
        0, tokenizer, reasoning=reasons(context) if reasons else None, tools=calls(context), prompt_tokens=1
    )
    tokens = tokenizer.encode(text)
    events: list[Event] = []
    for start in range(0, len(tokens), step):
        is_last = start + step >= len(tokens)
        output = pipeline.push(tokens[start : start + step], [], "stop" if is_last else None, 0)
        if output is not None:
            events += output.events
            if is_last:
                assert output.finish == ("tool_calls" if expected else "stop")
    check_events(events)
    folded = fold(join(events))
    assert (folded.reasoning, folded.content, folded.calls) == (reasoning, content, expected)


def test_code_that_a_limit_cut_off_is_no_complete_call():
    tokenizer = MarkerTokenizer(EOS, *FunctionaryToolParser.special_tokens)
    pipeline = CompletionPipeline(0, tokenizer, tools=FunctionaryToolParser(ParserContext(tokenizer, TOOLS)))
    output = pipeline.push(tokenizer.encode("python\nprint(1"), [], "length", 0)
    assert output is not None
    assert output.finish == "length"
    assert fold(output.events).calls == []
