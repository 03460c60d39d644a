from __future__ import annotations

import re

import pytest

from vllm_mlx_core.api import Chunk, Event, ParserContext, ReasoningDelta, TextDelta, Tool
from vllm_mlx_core.engine.pipeline import CompletionPipeline
from vllm_mlx_core.testing import ReasoningParserSuite
from vllm_mlx_core.testing.events import check_events, fold, join
from vllm_mlx_core.testing.parsers import ReasoningSample
from vllm_mlx_parsers.harmony_messages import STRUCTURE
from vllm_mlx_parsers.reasoning.harmony import HarmonyReasoningParser
from vllm_mlx_parsers.tools.harmony import HarmonyToolParser

from .completions import MarkerTokenizer

WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PARIS = ("get_weather", {"city": "Paris"})
NEXT = "<|end|><|start|>assistant"
THINK = "<|channel|>analysis<|message|>Need weather."
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}'
PREAMBLE = "<|channel|>commentary<|message|>I look."
FINAL = "<|channel|>final<|message|>It is sunny."
BODY = re.compile(r'<\|message\|>([^<`{"]*)')
STEPS = (1, 2, 3, 5, 7, 13, 10_000)


def squeezed(text):
    return "".join(text.split())


class TestHarmonyReasoningConforms(ReasoningParserSuite):
    parser = HarmonyReasoningParser
    samples = (
        ReasoningSample(HarmonyReasoningParser.sample, "Greet back.", "Hello!"),
        ReasoningSample(f"{THINK}{NEXT}{FINAL}", "Need weather.", "It is sunny."),
        ReasoningSample(
            f"{THINK}{NEXT}{THINK}{NEXT}{FINAL}<|return|>", "Need weather.\n\nNeed weather.", "It is sunny."
        ),
        ReasoningSample(f"<|start|>assistant{PREAMBLE}{NEXT}{FINAL}", "", "I look.\n\nIt is sunny."),
        ReasoningSample(f"{THINK}<|end|>assistant{FINAL}", "Need weather.", "It is sunny."),
        ReasoningSample(f"{THINK}{FINAL}", "Need weather.", "It is sunny."),
        ReasoningSample(THINK, "Need weather."),
        ReasoningSample(f"Need weather.{NEXT}{FINAL}", "Need weather.", "It is sunny.", thinking_open=True),
        ReasoningSample("It is sunny.<|return|>", "", "It is sunny."),
        ReasoningSample(f"{THINK}{NEXT}{CALL}<|call|>", 'Need weather.\n\n{"city":"Paris"}'),
        ReasoningSample("<|channel|>analysis to=python code<|message|>1 + 1<|call|>", "1 + 1"),
        ReasoningSample(
            f"<|start|>functions.f to=assistant<|channel|>commentary<|message|>Made up{NEXT}{FINAL}",
            "Made up",
            "It is sunny.",
        ),
        ReasoningSample(THINK.replace("analysis", "analysis––x y") + NEXT + FINAL, "Need weather.", "It is sunny."),
        ReasoningSample("<|channel|>other<|message|>It is sunny.", "", "It is sunny."),
        ReasoningSample("<|channel|>final<|message|>a `b`<|end|><|return|>", "", "a `b`"),
        ReasoningSample(
            f"{THINK} `<|end|>{FINAL}\n`<|end|>`\n```\n<|channel|>\n```",
            "Need weather. `",
            "It is sunny.\n`<|end|>`\n```\n<|channel|>\n```",
            literal=True,
        ),
    )

    def _check_nothing_lost(self, text, events):
        """Headers are dropped, whatever is in them; bodies are not."""
        emitted = squeezed(self.emitted_text(events))
        for body in BODY.findall(text):
            assert squeezed(body) in emitted


def parse(text, width, *, tools=(WEATHER,)):
    """Feed both parsers one after the other, as a server does; return all events."""
    context = ParserContext(tools=tools)
    reasoning, calls = HarmonyReasoningParser(context), HarmonyToolParser(context)
    pieces = [Chunk(text[start : start + width]) for start in range(0, len(text), width)]
    events: list[Event] = []
    for event in (e for part in (*map(reasoning.feed, pieces), reasoning.finish()) for e in part):
        events += calls.feed(Chunk(event.text)) if isinstance(event, TextDelta) else [event]
    events += calls.finish()
    check_events(events)
    return events


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        (f"{THINK}{NEXT}{CALL}<|call|>", "Need weather.", "", [PARIS]),
        (f"{THINK}{NEXT}{CALL}", "Need weather.", "", [PARIS]),
        (
            '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>',
            "",
            "",
            [PARIS],
        ),
        (' to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>', "", "", [PARIS]),
        (f"{PREAMBLE}{NEXT}{CALL}<|call|>", "", "I look.", [PARIS]),
        (f"{THINK}{NEXT}{CALL.replace('commentary', 'analysis')}<|call|>", "Need weather.", "", [PARIS]),
        (f"{THINK}{NEXT}{CALL.replace(' <|constrain|>json', ' response odd')}", "Need weather.", "", [PARIS]),
        (f"{THINK}{NEXT}{CALL}{NEXT}{CALL}{NEXT}{FINAL}", "Need weather.", "It is sunny.", [PARIS, PARIS]),
        (f"{PREAMBLE}{NEXT}{CALL}{NEXT}{THINK}{NEXT}{FINAL}", "Need weather.", "I look.\n\nIt is sunny.", [PARIS]),
        (CALL.replace("Paris", '<|end|> é 北京 \\" }'), "", "", [("get_weather", {"city": '<|end|> é 北京 " }'})]),
        (CALL.replace('{"city":"Paris"}', "") + "<|call|>", "", "", [("get_weather", {})]),
        (f"{THINK}{NEXT}{CALL.replace('}', '')}", "Need weather.", "", []),
        (f"{CALL.replace('}', ' 1}')}{NEXT}{FINAL}", "", '{"city":"Paris" 1}\n\nIt is sunny.', []),
        (f"{THINK}{NEXT}{FINAL}", "Need weather.", "It is sunny.", []),
        ("Plain `text` only.\n", "", "Plain `text` only.\n", []),
    ],
)
def test_both_parsers_together_give_reasoning_content_and_calls_at_every_cut(width, text, reasoning, content, calls):
    events = parse(text, width)
    folded = fold(events)
    assert (folded.reasoning, folded.content, folded.calls) == (reasoning, content, calls)
    assert join(events) == join(parse(text, len(text)))


def test_calls_without_declared_tools_are_reasoning_and_leak_no_marker(run, width):
    folded = fold(run(HarmonyReasoningParser(ParserContext()), f"{PREAMBLE}{NEXT}{CALL}<|call|>", width))
    assert folded.content == "I look."
    assert folded.reasoning == '{"city":"Paris"}'


@pytest.mark.parametrize("tool", ["python", "browser.search"])
def test_a_builtin_tool_is_called_if_declared_and_reasoning_otherwise(width, tool):
    text = f'{THINK}{NEXT}<|channel|>analysis to={tool} code<|message|>{{"q": 1}}<|call|>'
    assert fold(parse(text, width, tools=(Tool(tool),))).calls == [(tool, {"q": 1})]
    undeclared = fold(parse(text, width))
    assert undeclared.reasoning == 'Need weather.\n\n{"q": 1}'
    assert undeclared.calls == []
    assert undeclared.content == ""


def test_thinking_says_whether_the_stream_is_inside_the_analysis():
    parser = HarmonyReasoningParser(ParserContext(tools=(WEATHER,)))
    states = []
    for piece in ("<|channel|>", "analysis", "<|message|>", "Hm", "<|end|>", "<|start|>", CALL, "<|end|>", FINAL):
        parser.feed(Chunk(piece))
        states.append(parser.thinking)
    assert states == [False, False, True, True, False, False, False, False, False]


def test_thinking_stays_open_where_the_stream_ends_inside_the_analysis():
    parser = HarmonyReasoningParser(ParserContext())
    assert fold(parser.parse(THINK)).reasoning == "Need weather."
    assert parser.thinking


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|start|>user<|message|>Hi<|end|><|start|>assistant", (False, False)),
        ("<|start|>user<|message|><|channel|>analysis<|message|><|end|><|start|>assistant", (False, False)),
        ("<|start|>assistant<|channel|>analysis<|message|>", (True, False)),
        ("<|start|>assistant<|channel|>final<|message|>", (False, False)),
    ],
)
def test_a_prompt_opens_thinking_only_if_it_ends_in_the_header_of_an_analysis(prompt, expected):
    assert HarmonyReasoningParser.thinking_in_prompt(prompt) == expected


def test_reasoning_and_answer_stream_while_they_are_generated():
    parser = HarmonyReasoningParser(ParserContext())
    parser.feed(Chunk("<|channel|>analysis<|message|>"))
    assert [list(parser.feed(Chunk(word))) for word in ("Need", " weather")] == [
        [ReasoningDelta("Need")],
        [ReasoningDelta(" weather")],
    ]
    parser.feed(Chunk(f"{NEXT}<|channel|>final<|message|>"))
    assert [list(parser.feed(Chunk(word))) for word in ("It", " is")] == [[TextDelta("It")], [TextDelta(" is")]]


def complete(tokenizer, text, *, step=1, tools=(WEATHER,), **options):
    """Run a completion that ends with a stop token through the pipeline; return its events and finish reason."""
    context = ParserContext(tokenizer, tools)
    pipeline = CompletionPipeline(
        0,
        tokenizer,
        reasoning=HarmonyReasoningParser(context),
        tools=HarmonyToolParser(context) if tools else None,
        **options,
    )
    tokens = tokenizer.encode(text)
    events: list[Event] = []
    finish = None
    for start in range(0, len(tokens), step):
        is_last = start + step >= len(tokens)
        output = pipeline.push(tokens[start : start + step], [], "stop" if is_last else None, 0)
        if output is not None:
            events += output.events
            finish = output.finish
    check_events(events)
    return events, finish


PIPELINE_CASES = [
    (f"{THINK}{NEXT}{CALL}<|call|>", "Need weather.", "", [PARIS], "tool_calls"),
    (f"{PREAMBLE}{NEXT}{CALL}<|call|>", "", "I look.", [PARIS], "tool_calls"),
    (f"{THINK}{NEXT}{FINAL}<|return|>", "Need weather.", "It is sunny.", [], "stop"),
    (CALL.replace('{"city":"Paris"}', "<|call|>"), "", "", [("get_weather", {})], "tool_calls"),
    (f"{FINAL}\n```\n<|return|>", "", "It is sunny.\n```\n", [], "stop"),
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("text", "reasoning", "content", "calls", "finish"), PIPELINE_CASES)
def test_a_completion_comes_out_of_the_pipeline_in_order(step, text, reasoning, content, calls, finish):
    events, reason = complete(MarkerTokenizer(*STRUCTURE), text, step=step)
    folded = fold(events)
    assert (folded.reasoning, folded.content, folded.calls) == (reasoning, content, calls)
    assert reason == finish


@pytest.mark.parametrize("step", [1, 4, 10_000])
@pytest.mark.parametrize(("text", "reasoning", "content", "calls", "finish"), PIPELINE_CASES)
def test_the_tokens_of_gpt_oss_lose_no_marker(real_tokenizer, step, text, reasoning, content, calls, finish):
    events, reason = complete(real_tokenizer("gptoss"), text, step=step)
    folded = fold(events)
    assert (folded.reasoning, folded.content, folded.calls) == (reasoning, content, calls)
    assert reason == finish


def test_a_code_fence_that_is_never_closed_does_not_swallow_the_messages_after_it():
    preamble = PREAMBLE.replace("I look.", "```sh\nls")
    events, _ = complete(MarkerTokenizer(*STRUCTURE), f"{preamble}{NEXT}{THINK}{NEXT}{CALL}<|call|>")
    folded = fold(events)
    assert (folded.content, folded.reasoning, folded.calls) == ("```sh\nls", "Need weather.", [PARIS])


def test_without_tools_the_pipeline_shows_no_call_and_no_marker():
    events, finish = complete(MarkerTokenizer(*STRUCTURE), f"{PREAMBLE}{NEXT}{CALL}<|call|>", tools=())
    folded = fold(events)
    assert (folded.content, folded.reasoning, finish) == ("I look.", '{"city":"Paris"}', "stop")


def test_calls_that_the_client_forbade_leave_neither_call_nor_marker():
    events, _ = complete(MarkerTokenizer(*STRUCTURE), f"{PREAMBLE}{NEXT}{CALL}<|call|>", drop_calls=True)
    assert fold(events).content == "I look."
    assert fold(events).calls == []
