"""From tokens to outputs: one pipeline per completion."""

from __future__ import annotations

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import (
    ParserContext,
    ReasoningDelta,
    ReasoningParser,
    TextDelta,
    Tool,
    ToolCallStart,
    ToolParser,
)
from vllm_mlx_core.engine.messages import Logprobs
from vllm_mlx_core.engine.pipeline import CompletionPipeline
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser

from .completions import (
    CALL_END,
    END_THINK,
    EOS,
    THINK,
    TOKENIZER,
    calls,
    content,
    logprob_bytes,
    logprobs_for,
    reasoning,
    run,
)

TOOL = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def thinking(**state):
    return Qwen3ReasoningParser(ParserContext(TOKENIZER, **state))


def calling():
    return HermesToolParser(ParserContext(TOKENIZER, (TOOL,)))


def pipeline_of(**options):
    return CompletionPipeline(3, TOKENIZER, **options)


texts = st.text("ab\n é🙂世", max_size=25)
steps = st.integers(1, 9)


@given(texts, steps)
def test_plain_text_arrives_whole_and_is_counted(text, step):
    outputs = run(pipeline_of(prompt_tokens=7), text, step=step, cached=4)
    last = outputs[-1]
    assert content(outputs) == text
    assert [t for o in outputs for t in o.token_ids] == [*text.encode(), EOS]
    assert (last.choice, last.finish, last.stop) == (3, "stop", None)
    assert last.usage.completion_tokens == len(text.encode()) + 1
    assert (last.usage.prompt_tokens, last.usage.cached_tokens, last.usage.reasoning_tokens) == (7, 4, 0)
    assert all(o.finish is None and o.usage is None for o in outputs[:-1])


def test_there_is_no_output_while_there_is_nothing_to_say():
    pipeline = pipeline_of()
    pieces = [pipeline.push([byte], (), None, 0) for byte in "🙂".encode()]
    assert pieces[:3] == [None, None, None]
    assert pieces[3].events == (TextDelta("🙂"),)
    assert list(pieces[3].token_ids) == list("🙂".encode())


@pytest.mark.parametrize("wants_logprobs", [False, True])
def test_a_scored_prompt_comes_with_the_first_output_even_without_text(wants_logprobs):
    prompt = [EOS, *"é".encode(), 97]
    pipeline = pipeline_of(scored_prompt=prompt, wants_logprobs=wants_logprobs)
    output = pipeline.push(
        ["🙂".encode()[0]], logprobs_for([240]) if wants_logprobs else (), None, 0, logprobs_for(prompt[1:])
    )
    assert list(output.events) == []
    assert [(each.token_id, each.text) for each in output.prompt_logprobs] == list(
        zip(prompt, (b"<eos>", b"\xc3", b"\xa9", b"a"), strict=True)
    )
    assert [each.logprob for each in output.prompt_logprobs] == [None, -0.5, -0.5, -0.5]
    assert [[top.text for top in each.top] for each in output.prompt_logprobs[1:3]] == [
        [b"\xc3", b"a"],
        [b"\xa9", b"a"],
    ]
    assert len(output.logprobs) == wants_logprobs
    last = pipeline.push([EOS], logprobs_for([EOS]), "stop", 0)
    assert list(last.prompt_logprobs) == []
    assert [each.chosen.text for each in last.logprobs] == [b"<eos>"] * wants_logprobs


def test_with_a_scored_prompt_tokens_that_are_not_shown_have_entries_without_text():
    outputs = run(pipeline_of(scored_prompt=[97], wants_logprobs=True, stops=["b"]), [97, CALL_END, 97, 98, 99])
    assert content(outputs) == "aa"
    assert [(e.chosen.token_id, e.chosen.text) for o in outputs for e in o.logprobs] == [
        (97, b"a"), (CALL_END, b""), (97, b"a"), (98, b"b"),
    ]  # fmt: skip


def test_a_completion_cut_by_length_shows_its_last_token_but_no_broken_character():
    outputs = run(pipeline_of(), "ab🙂".encode()[:-1], "length")
    assert (content(outputs), outputs[-1].finish) == ("ab", "length")
    assert outputs[-1].usage.completion_tokens == 5


def test_a_stop_token_of_the_request_is_named_and_not_shown():
    pipeline = pipeline_of(stop_token_ids=[98])
    assert pipeline.push([97], (), None, 0).events == (TextDelta("a"),)
    last = pipeline.push([98], (), "stop", 0)
    assert (last.events, last.finish, last.stop) == ([], "stop", 98)
    assert last.usage.completion_tokens == 2


@given(texts, st.lists(st.text("ab\n", min_size=1, max_size=3), min_size=1, max_size=3), steps)
def test_a_stop_string_ends_the_answer_before_it_wherever_tokens_and_steps_fall(text, stops, step):
    found = [(text.find(s) + len(s), text.find(s), s) for s in stops if s in text]
    outputs = run(pipeline_of(stops=stops), text, step=step)
    end, start, stop = min(found) if found else (len(text), len(text), None)
    assert content(outputs) == text[:start]
    assert (outputs[-1].finish, outputs[-1].stop) == ("stop", stop)
    assert outputs[-1].usage.completion_tokens == len(text[:end].encode()) + (stop is None)


def test_stop_strings_do_not_apply_to_reasoning():
    tokens = [THINK, *b"one\n\ntwo", END_THINK, *b"\n\nyes\n\nno"]
    outputs = run(pipeline_of(reasoning=thinking(), stops=["\n\n"]), tokens)
    assert (reasoning(outputs), content(outputs), outputs[-1].stop) == ("one\n\ntwo", "yes", "\n\n")


@pytest.mark.parametrize("step", [1, 4, 100])
def test_reasoning_answer_and_call_are_told_apart(step):
    tokens = [THINK, *b"hm", END_THINK, *b"I look.", *CALL.encode()]
    outputs = run(pipeline_of(reasoning=thinking(), tools=calling()), tokens, step=step)
    assert reasoning(outputs) == "hm"
    assert content(outputs).strip() == "I look."
    ((name, arguments, complete),) = calls(outputs)
    assert (name, json.loads(arguments), complete) == ("get_weather", {"city": "Paris"}, True)
    assert (outputs[-1].finish, outputs[-1].stop) == ("tool_calls", None)
    assert outputs[-1].usage.reasoning_tokens == 4


def test_reasoning_tokens_are_those_up_to_the_end_marker_when_the_prompt_opened_the_block():
    tokens = [*b"plan it\n", END_THINK, *b"\n\nThe answer."]
    (usage,) = [o.usage for o in run(pipeline_of(reasoning=thinking(thinking_open=True)), tokens) if o.usage]
    assert usage.reasoning_tokens == 9


def test_markers_in_ordinary_tokens_count_too_and_those_in_an_answer_do_not():
    outputs = run(pipeline_of(reasoning=thinking()), "<think>ab</think>say <think>no")
    assert (reasoning(outputs), content(outputs)) == ("ab", "say <think>no")
    assert outputs[-1].usage.reasoning_tokens == len(">ab</think>")


def test_an_answer_without_reasoning_spends_no_tokens_on_it():
    outputs = run(pipeline_of(reasoning=thinking(thinking_off=True)), "Hello <think> you")
    assert (content(outputs), outputs[-1].usage.reasoning_tokens) == ("Hello <think> you", 0)


def test_a_call_cut_by_length_is_never_complete():
    outputs = run(pipeline_of(tools=calling()), CALL[:60], "length")
    assert not any(complete for _, _, complete in calls(outputs))
    assert outputs[-1].finish == "length"


def test_without_parallel_calls_the_completion_ends_with_the_first_complete_one():
    outputs = run(pipeline_of(tools=calling(), parallel_tool_calls=False), CALL + CALL, step=7)
    assert [name for name, _, _ in calls(outputs)] == ["get_weather"]
    assert outputs[-1].finish == "tool_calls"
    assert outputs[-1].usage.completion_tokens < len(CALL) + 8
    both = run(pipeline_of(tools=calling()), CALL + CALL, step=7)
    assert [complete for _, _, complete in calls(both)] == [True, True]


def test_neighbouring_events_of_one_push_are_merged():
    (output,) = run(pipeline_of(reasoning=thinking()), [THINK, *b"abc", END_THINK, *b"xyz"], step=100)
    assert output.events == [ReasoningDelta("abc"), TextDelta("xyz")]


def test_special_tokens_are_hidden_unless_a_parser_or_the_request_wants_them():
    tokens = [257, *b"a"]
    assert content(run(pipeline_of(), tokens)) == "a"
    assert content(run(pipeline_of(tools=calling()), tokens)) == "a"
    assert content(run(pipeline_of(skip_special_tokens=False), tokens)) == "<think>a"
    assert reasoning(run(pipeline_of(reasoning=thinking()), tokens)) == "a"


# -- log-probabilities ------------------------------------------------------------------------------------------------


@given(texts, steps)
def test_the_bytes_of_the_logprobs_join_to_the_content(text, step):
    outputs = run(pipeline_of(wants_logprobs=True), text, step=step)
    assert logprob_bytes(outputs).decode() == content(outputs) == text
    assert [e.chosen.token_id for o in outputs for e in o.logprobs] == list(text.encode())


@given(texts, steps, st.sampled_from([["a\nb"], ["zz", "b\n\n"]]))
def test_logprobs_wait_for_text_that_a_stop_string_holds_back(text, step, stops):
    outputs = run(pipeline_of(wants_logprobs=True, stops=stops), text, step=step)
    assert logprob_bytes(outputs).decode() == content(outputs)
    for i in range(len(outputs)):
        assert len(logprob_bytes(outputs[:i])) == len(content(outputs[:i]).encode())


def test_logprobs_carry_values_and_alternatives():
    (entry,) = [e for o in run(pipeline_of(wants_logprobs=True), "x") for e in o.logprobs]
    assert (entry.chosen.token_id, entry.chosen.text, entry.chosen.logprob) == (120, b"x", -0.5)
    assert [(top.token_id, top.text, top.logprob) for top in entry.top] == [(120, b"x", -0.5), (97, b"a", -1.5)]


@pytest.mark.parametrize("step", [1, 5, 200])
def test_logprobs_of_reasoning_and_calls_are_dropped(step):
    tokens = [THINK, *b"abc", END_THINK, *b"\n\nabc <b> it", *CALL.encode()]
    outputs = run(pipeline_of(reasoning=thinking(), tools=calling(), wants_logprobs=True), tokens, step=step)
    assert content(outputs).strip() == "abc <b> it"
    assert logprob_bytes(outputs).decode() == content(outputs)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a</think>in", "in"),
        ("<think>think</think>think", "think"),
        (f"a{CALL}a", "aa"),
        (f"{CALL}\ncity{CALL}\ncity", "city\ncity"),
        (f"so {CALL} it", "so it"),
        (f"{CALL[:-14]}, x {CALL}name", f"{CALL[:-14]}, x name"),
        (f"`{CALL}` {CALL}tool_call", f"`{CALL}` tool_call"),
        (f"<think></think>{CALL}call", "call"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 200])
@pytest.mark.parametrize("special", [True, False])
def test_logprobs_are_those_of_the_answer_even_if_markers_and_calls_say_the_same(text, shown, step, special):
    tokens = [*text.encode()]
    if special:
        names = {**TOKENIZER.specials}
        parts = re.split(f"({'|'.join(map(re.escape, names.values()))})", text)
        ids = {marker: token for token, marker in names.items()}
        tokens = [token for part in parts for token in ([ids[part]] if part in ids else part.encode())]
    outputs = run(pipeline_of(reasoning=thinking(), tools=calling(), wants_logprobs=True), tokens, step=step)
    assert content(outputs) == shown
    assert logprob_bytes(outputs).decode() == shown


def test_logprobs_of_the_answer_after_a_call_are_those_of_its_own_tokens():
    stream = pipeline_of(tools=calling(), wants_logprobs=True)
    text = f"a{CALL}a"
    outputs = [
        stream.push([token], [Logprobs(-float(place), [], [])], None, 0) for place, token in enumerate(text.encode())
    ]
    shown = [entry.chosen.logprob for output in outputs if output for entry in output.logprobs]
    assert shown == [0.0, -float(len(text) - 1)]


def test_a_character_cut_at_the_end_has_no_logprobs_either():
    outputs = run(pipeline_of(wants_logprobs=True), "a🙂".encode()[:-1], "length")
    assert logprob_bytes(outputs) == b"a"


# -- parsers that fail ------------------------------------------------------------------------------------------------


class FailingReasoning(ReasoningParser):
    def feed(self, chunk):
        if "!" in chunk.text:
            raise RuntimeError("broken")
        return [ReasoningDelta(chunk.text)]

    def finish(self):
        raise RuntimeError("broken at the end")


class FailingTools(ToolParser):
    def feed(self, chunk):
        yield ToolCallStart(0, "id", "f")
        raise RuntimeError("broken")

    def finish(self):
        return ()


def test_a_reasoning_parser_that_raises_is_reported_once_and_the_rest_passes_through(caplog):
    pipeline = pipeline_of(reasoning=FailingReasoning(ParserContext()))
    with caplog.at_level(logging.ERROR):
        outputs = run(pipeline, "ab!c!d")
    assert (reasoning(outputs), content(outputs), outputs[-1].finish) == ("ab", "!c!d", "stop")
    assert len(caplog.records) == 1


def test_a_parser_that_raises_at_the_end_does_not_take_the_end_away(caplog):
    outputs = run(pipeline_of(reasoning=FailingReasoning(ParserContext())), "ab")
    assert (reasoning(outputs), outputs[-1].finish) == ("ab", "stop")
    assert len(caplog.records) == 1


def test_a_tool_parser_that_raises_midway_leaves_no_half_call(caplog):
    outputs = run(pipeline_of(tools=FailingTools(ParserContext())), "ab")
    assert (content(outputs), calls(outputs), outputs[-1].finish) == ("ab", [], "stop")
    assert len(caplog.records) == 1
