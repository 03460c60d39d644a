"""Calls that a model writes inside its thinking."""

from __future__ import annotations

import functools
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import (
    Chunk,
    ParserContext,
    ReasoningDelta,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)
from vllm_mlx_core.engine.calls_in_thinking import CallsInThinking
from vllm_mlx_core.engine.pipeline import CompletionPipeline
from vllm_mlx_core.host import Host, report
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser

from .completions import END_THINK, THINK, TOKENIZER, calls, content, logprob_bytes, reasoning, run

CONTEXT = ParserContext(TOKENIZER, (Tool("read"), Tool("list")))
STEPS = (1, 2, 3, 5, 7, 13, 1000)


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


READ = call("read", path="/tmp/p")
UNKNOWN = call("unknown", x=1)


def pipeline(*, thinking_open=False, **options):
    context = ParserContext(TOKENIZER, CONTEXT.tools, thinking_open=thinking_open)
    return CompletionPipeline(
        0,
        TOKENIZER,
        reasoning=Qwen3ReasoningParser(context),
        tools=HermesToolParser(context),
        calls_in_thinking=CallsInThinking(lambda: HermesToolParser(context), context.declares),
        **options,
    )


def read(text, finish="stop", *, step=1, **options):
    return run(pipeline(**options), text, finish, step=step)


def summary(outputs):
    found = [(name, json.loads(arguments or "{}"), complete) for name, arguments, complete in calls(outputs)]
    return reasoning(outputs), content(outputs), found, outputs[-1].finish


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("thinking_open", [False, True])
def test_a_call_in_thinking_that_is_never_closed_is_real(step, thinking_open):
    text = f"need the file\n{READ}"
    outputs = read(text if thinking_open else f"<think>\n{text}", step=step, thinking_open=thinking_open)
    assert summary(outputs) == ("need the file", "", [("read", {"path": "/tmp/p"}, True)], "tool_calls")


READINGS = [
    (f"{READ}", "", ["read"]),
    (f"a {READ}\nb", "a\nb", ["read"]),
    (f"a\n{READ}\n\n{call('list')}\n", "a", ["read", "list"]),
    (f"a {READ} b {call('list')} c", "a\nb\nc", ["read", "list"]),
    (f"a {UNKNOWN} b", f"a {UNKNOWN} b", []),
    (f"a {UNKNOWN}\n{READ} b", f"a {UNKNOWN}\nb", ["read"]),
    (f"a {READ}\n{UNKNOWN} b", f"a\n{UNKNOWN} b", ["read"]),
    (f"a {UNKNOWN}", f"a {UNKNOWN}", []),
    (f"a\n{READ} b {READ[:30]}", f"a\nb {READ[:30]}", ["read"]),
    (f"a {READ[:-20]}", f"a {READ[:-20]}", []),
    (f"a {READ[:30]}", f"a {READ[:30]}", []),
    ("about <tool_call> tags", "about <tool_call> tags", []),
    ("a < b <tool", "a < b <tool", []),
    ("plain thinking", "plain thinking", []),
]


@pytest.mark.parametrize(("text", "thought", "names"), READINGS)
def test_only_complete_calls_of_declared_tools_are_real_and_the_rest_stays_thinking(text, thought, names):
    for step in STEPS:
        outputs = read(f"<think>{text}", step=step)
        assert reasoning(outputs) == thought
        assert content(outputs) == ""
        assert [(name, complete) for name, _, complete in calls(outputs)] == [(name, True) for name in names]
        assert outputs[-1].finish == ("tool_calls" if names else "stop")


@pytest.mark.parametrize(("text", "thought", "names"), READINGS)
def test_if_the_block_closes_all_of_it_was_thinking(text, thought, names):
    for step in STEPS:
        outputs = read(f"<think>{text}</think>Done.", step=step)
        assert summary(outputs) == (text.strip(), "Done.", [], "stop")


@pytest.mark.parametrize("step", STEPS)
def test_a_block_that_closes_at_the_very_end_holds_no_calls(step):
    assert summary(read(f"<think>a {READ}</think>", step=step)) == (f"a {READ}", "", [], "stop")


@pytest.mark.parametrize("step", STEPS)
def test_a_call_after_the_block_is_real_as_ever(step):
    outputs = read(f"<think>a {READ}</think>{call('list')}", step=step)
    assert summary(outputs) == (f"a {READ}", "", [("list", {}, True)], "tool_calls")


@pytest.mark.parametrize("step", STEPS)
def test_what_the_limit_cuts_off_is_thinking(step):
    assert summary(read(f"<think>a {READ}", "length", step=step)) == (f"a {READ}", "", [], "length")


def test_thinking_streams_up_to_the_call():
    stream = pipeline()
    streamed = [stream.push([token], [], None, 0) for token in f"<think>need the file {READ}".encode()]
    assert reasoning(output for output in streamed if output) == "need the file"
    last = stream.push([256], [], "stop", 0)
    assert (reasoning([last]), calls([last])) == ("", [("read", '{"path": "/tmp/p"}', True)])


def test_thinking_streams_on_after_a_call_of_no_declared_tool_and_after_a_broken_one():
    for draft in (UNKNOWN, '<tool_call>{"name": "read", "arguments": oops}</tool_call>'):
        stream = pipeline()
        streamed = [stream.push([token], [], None, 0) for token in f"<think>so {draft} on".encode()]
        assert reasoning(output for output in streamed if output) == f"so {draft} on"
        streamed = [stream.push([token], [], None, 0) for token in f" {READ} and on".encode()]
        assert reasoning(output for output in streamed if output) == ""
        last = stream.push([256], [], "stop", 0)
        assert (reasoning([last]), [name for name, _, _ in calls([last])]) == ("\nand on", ["read"])


def test_a_broken_call_stays_thinking_whole_before_and_after_a_real_one():
    parser = Host().tool_parsers.get("harmony")  # which drops the header of a broken call
    context = ParserContext(tools=[Tool("get_weather")])
    broken = parser.sample.replace('"Paris"', "oops").removesuffix("<|call|>")
    for text, thought in ((f"a {broken}{parser.sample} b", f"a {broken}\nb"), (f"a {parser.sample}{broken} b", None)):
        for width in STEPS:
            reader = CallsInThinking(functools.partial(parser, context), context.declares)
            told = "".join(reader.feed(text[start : start + width]) for start in range(0, len(text), width))
            rest, events = reader.finish()
            assert told + rest == (thought or f"a\n{broken} b")
            assert len(events) == 3


def test_held_thinking_is_released_as_soon_as_the_block_closes():
    stream = pipeline()
    outputs = [stream.push([token], [], None, 0) for token in [THINK, *f"a {READ}".encode(), END_THINK]]
    assert reasoning(output for output in outputs if output) == f"a {READ}"


@pytest.mark.parametrize("step", STEPS)
def test_without_parallel_calls_only_the_first_is_made(step):
    outputs = read(f"<think>a {READ} {READ}", step=step, parallel_tool_calls=False)
    assert [name for name, _, _ in calls(outputs)] == ["read"]
    assert outputs[-1].finish == "tool_calls"


@pytest.mark.parametrize("step", STEPS)
def test_tokens_of_such_calls_count_and_have_no_logprobs(step):
    tokens = [THINK, *f"a {READ}".encode()]
    outputs = run(pipeline(wants_logprobs=True), tokens, step=step)
    assert logprob_bytes(outputs) == b""
    usage = outputs[-1].usage
    assert (usage.completion_tokens, usage.reasoning_tokens) == (len(tokens) + 1, len(tokens))


@pytest.mark.parametrize("step", STEPS)
def test_logprobs_of_the_answer_after_held_thinking_are_right(step):
    outputs = run(pipeline(wants_logprobs=True), [THINK, *f"a {READ}".encode(), END_THINK, *b"a b"], step=step)
    assert (logprob_bytes(outputs).decode(), content(outputs)) == ("a b", "a b")


FORMATS = [
    row.name for row in report.rows(Host()) if row.kind == "tool_parsers" and row.distribution == "vllm-mlx-core"
]


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_in_thinking_is_real_in_every_format_if_its_tool_is_declared(name):
    parser = Host().tool_parsers.get(name)
    for tools, thought, names in (
        ([Tool("get_weather")], "the weather", ["get_weather"]),
        ([Tool("other")], f"the weather\n{parser.sample}", []),
    ):
        context = ParserContext(tools=tools)
        for width in STEPS:
            reader = CallsInThinking(functools.partial(parser, context), context.declares)
            text = f"the weather\n{parser.sample}"
            told = "".join(reader.feed(text[start : start + width]) for start in range(0, len(text), width))
            rest, events = reader.finish()
            assert told + rest == thought
            assert [event.name for event in events if isinstance(event, ToolCallStart)] == names
            arguments = "".join(event.json for event in events if isinstance(event, ToolCallArguments))
            assert not names or json.loads(arguments) == {"city": "Paris"}


@given(
    st.lists(st.sampled_from([READ, UNKNOWN, "<tool_call>", "</tool_call>", "{", "}", " ", "\n", "a", "`", "世"])),
    st.lists(st.integers(0, 400), max_size=8).map(sorted),
)
def test_any_thinking_reads_the_same_at_every_cut_and_loses_nothing(parts, cuts):
    text = "".join(parts)

    def outcome(pieces):
        reader = CallsInThinking(lambda: HermesToolParser(CONTEXT), CONTEXT.declares)
        told = "".join([reader.feed(piece) for piece in pieces if piece])
        assert text.startswith(told)
        rest, events = reader.finish()
        if not events:
            assert told + rest == text
        return told + rest, [event.name for event in events if isinstance(event, ToolCallStart)]

    bounds = [0, *cuts, max(len(text), 400)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    assert outcome(pieces) == outcome([text]) == outcome(list(text))


@pytest.mark.parametrize("name", FORMATS)
def test_any_thinking_reads_the_same_at_every_cut_in_every_format(name):
    parser = Host().tool_parsers.get(name)
    context = ParserContext(tools=[Tool("get_weather")])
    good, broken = parser.sample, parser.sample[: len(parser.sample) // 2]
    other = good.replace("get_weather", "unknown")

    def outcome(pieces):
        reader = CallsInThinking(functools.partial(parser, context), context.declares)
        told = "".join([reader.feed(piece) for piece in pieces])
        rest, events = reader.finish()
        return told + rest, [event.name for event in events if isinstance(event, ToolCallStart)]

    for text in (
        f"a {good} b",
        f"a{other}\n{good}b",
        f"{good}{other} b",
        f"{broken}\n{good}",
        f"{good}{broken}",
        f"`{good}",
    ):
        whole = outcome([text])
        for width in (1, 2, 5):
            assert outcome([text[start : start + width] for start in range(0, len(text), width)]) == whole


class Shouting(ToolParser):
    """Changes the text, which no parser should."""

    def feed(self, chunk):
        return [TextDelta(chunk.text.upper())]

    def finish(self):
        return ()


class Failing(ToolParser):
    def feed(self, chunk):
        raise RuntimeError("broken")

    def finish(self):
        return ()


class FailingAtTheEnd(ToolParser):
    def feed(self, chunk):
        return [ToolCallStart(0, "id", "read"), ToolCallEnd(0)] if chunk.text.endswith("!") else [TextDelta(chunk.text)]

    def finish(self):
        raise RuntimeError("broken")


@pytest.mark.parametrize("parser", [Shouting, Failing, FailingAtTheEnd])
def test_thinking_survives_a_parser_that_is_wrong(parser, caplog):
    reader = CallsInThinking(lambda: parser(CONTEXT), CONTEXT.declares)
    told = "".join(reader.feed(piece) for piece in ["it ", "is", " so!", " yes"])
    rest, events = reader.finish()
    assert (told + rest, events) == ("it is so! yes", [])
    assert len(caplog.records) == (parser is not Shouting)


def test_a_second_block_is_read_afresh():
    reader = CallsInThinking(lambda: HermesToolParser(CONTEXT), CONTEXT.declares)
    assert (reader.feed(f"a {READ}"), reader.close()) == ("a", f" {READ}")
    assert (reader.feed(f"b {call('list')}"), reader.finish()[0]) == ("b", "")
    assert reader.close() == ""


def test_calls_are_numbered_on_from_those_of_the_answer():
    class Alternating(Qwen3ReasoningParser):
        """Thinks where it is asked to, as formats with several channels do."""

        def feed(self, chunk: Chunk):
            for char in chunk.text:
                if char in "[]":
                    self.thinking = char == "["
                else:
                    yield ReasoningDelta(char) if self.thinking else TextDelta(char)

        def finish(self):
            return ()

    context = ParserContext(TOKENIZER, CONTEXT.tools)
    stream = CompletionPipeline(
        0,
        TOKENIZER,
        reasoning=Alternating(context),
        tools=HermesToolParser(context),
        calls_in_thinking=CallsInThinking(lambda: HermesToolParser(context), context.declares),
    )
    outputs = run(stream, f"{READ}[so {call('list')}")
    assert calls(outputs) == [("read", '{"path": "/tmp/p"}', True), ("list", "{}", True)]
    assert reasoning(outputs) == "so"
