"""What one request's parsers make of its completions, from the request to the summary."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import ClassVar

import pytest

from vllm_mlx_core.api import (
    Chat,
    Chunk,
    GenerateRequest,
    ModelInfo,
    RenderedPrompt,
    RequestSummary,
    SamplingParams,
    Settings,
    TextDelta,
    Tool,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    ToolParser,
)
from vllm_mlx_core.engine.client import ModelClient, Observers
from vllm_mlx_core.engine.messages import EngineReady, Logprobs, SequenceUpdate, StepResult
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser

from .completions import CALL_END, EOS, TOKENIZER, calls, content, reasoning

pytestmark = pytest.mark.anyio

TOOL = Tool("add", parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
GOOD = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'
BAD = '<tool_call>{"name": "add", "arguments": {"n": "1"}}</tool_call>'


class CallLine(ToolParser):
    """``f()`` is a call once the stop token has confirmed it."""

    stop_tokens = ("<|call|>", "<think>", "not a token", "a")
    special_tokens: ClassVar = ("<|call|>",)

    def __init__(self, context):
        super().__init__(context)
        self._text = ""

    def feed(self, chunk: Chunk):
        self._text += chunk.text
        if self._text == "f()<|call|>":
            self._text = ""
            yield from (ToolCallStart(0, "id", "f"), ToolCallArguments(0, "{}"), ToolCallEnd(0))

    def finish(self):
        return [TextDelta(self._text)] if self._text else []


class Processor:
    """The text half of a model whose turns end with EOS."""

    tokenizer = TOKENIZER
    context_length = 1000
    stop_token_ids = (EOS,)
    defaults = SamplingParams()

    def render(self, chat):
        text = "".join(str(message["content"]) for message in chat.messages)
        return RenderedPrompt(text=text, token_ids=[1])

    def tokenize(self, text):
        return RenderedPrompt(text=text, token_ids=[1])


class Engine:
    """Records what is submitted, and says what it is told to."""

    is_alive = True

    def __init__(self):
        self.submitted = []

    def start(self):
        return Future()

    def connect(self, on_step, on_end):
        self._on_step = on_step

    def send(self, command):
        self.submitted.append(command)

    def stop(self, timeout_s=None):
        pass

    def say(self, tokens, finish, choice=0):
        sequence_id = self.submitted[choice].sequence_id
        logprobs = [Logprobs(-1.0, [], []) for _ in tokens]
        updates = [SequenceUpdate(sequence_id, tokens, logprobs, finish, 0)]
        self._on_step(
            StepResult(updates=updates, running=1, waiting=0, prefilled_tokens=0, generated_tokens=1, step_s=0)
        )


class Served:
    """A client of that engine, and what its observer hears."""

    def __init__(self, tool_parser=HermesToolParser, **settings):
        self.engine = Engine()
        self.summaries: list[RequestSummary] = []
        self.client = ModelClient(
            ModelInfo(id="m", created=0, context_length=1000, family="f"),
            Processor(),
            self.engine,
            EngineReady(
                vocab_size=TOKENIZER.vocab_size,
                nbytes=0,
                mode="batched",
                mode_reason="",
                captured=False,
                max_sequence_tokens=1 << 31,
            ),
            Settings(**settings),
            tool_parser=tool_parser,
            reasoning_parser=Qwen3ReasoningParser,
            observers=Observers(request_finished=self.summaries.append),
        )

    async def submit(self, *, tools=(TOOL,), prompt=None, **fields):
        chat = Chat(messages=[{"role": "user", "content": "hi"}], tools=tools)
        request = GenerateRequest(request_id="r", model="m", prompt=prompt or chat, **fields)
        return await self.client.generate(request)

    async def answer(self, text, *, finish="stop", stop_token=EOS, **fields):
        stream = await self.submit(**fields)
        self.engine.say([*text.encode(), *([stop_token] if finish == "stop" else [])], finish)
        return [output async for outputs in stream for output in outputs]


# -- stop tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "stops"),
    [
        ({}, {EOS, CALL_END, 257}),
        ({"tools": (), "tools_enabled": False}, {EOS, CALL_END, 257}),
        ({"tools": ()}, {EOS}),
        ({"prompt": "raw"}, {EOS}),
        ({"sampling": SamplingParams(ignore_eos=True)}, set()),
        ({"sampling": SamplingParams(ignore_eos=True, stop_token_ids=[97])}, {97}),
    ],
)
async def test_the_stop_tokens_of_a_tool_parser_in_use_that_are_special_tokens_end_a_completion(fields, stops):
    served = Served(CallLine)
    await served.submit(**fields)
    (submit,) = served.engine.submitted
    assert set(submit.stop_token_ids) == stops


async def test_a_parser_sees_the_stop_token_it_asked_for_and_the_client_is_not_told_of_it():
    (last,) = await Served(CallLine).answer("f()", stop_token=CALL_END)
    assert (calls([last]), content([last])) == ([("f", "{}", True)], "")
    assert (last.finish, last.stop, last.usage.completion_tokens) == ("tool_calls", None, 4)


@pytest.mark.parametrize(
    ("stop_token", "params", "stop"),
    [
        (EOS, {}, None),
        (257, {}, None),
        (257, {"skip_special_tokens": False}, None),
        (CALL_END, {"stop_token_ids": [CALL_END]}, CALL_END),
    ],
)
async def test_a_parser_sees_no_other_stop_token(stop_token, params, stop):
    (last,) = await Served(CallLine).answer("f()", stop_token=stop_token, sampling=SamplingParams(**params))
    assert (calls([last]), content([last]), last.finish, last.stop) == ([], "f()", "stop", stop)


# -- continued messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begun", "thought", "answer"),
    [
        ("The tag is ", "", "<think> it is"),
        ("<think>\nfirst ", "it is", ""),
        ("<think>\nfirst</think>\nThe tag is ", "", "<think> it is"),
    ],
)
async def test_a_continued_message_goes_on_where_it_broke_off(begun, thought, answer):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": begun}]
    chat = Chat(messages=messages, continue_final_message=True, add_generation_prompt=False)
    outputs = await Served().answer("<think> it is", prompt=chat)
    assert (reasoning(outputs), content(outputs)) == (thought, answer)


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "count"), [({}, 1), ({"validate_tool_calls": False}, 0), ({"repair_tool_calls": True}, 0)]
)
async def test_calls_that_do_not_fit_are_in_the_summary_and_in_the_health(settings, count):
    served = Served(**settings)
    (last,) = await served.answer(GOOD + BAD)
    assert last.finish == "tool_calls"
    assert [summary.invalid_tool_calls for summary in served.summaries] == [count]
    assert served.client.health()["invalid_tool_calls"] == count


async def test_repair_puts_arguments_right():
    (last,) = await Served(repair_tool_calls=True).answer(BAD)
    assert calls([last]) == [("add", '{"n": 1}', True)]


async def test_repair_loses_nothing_of_a_call_that_the_limit_cuts_off():
    for length in range(len(BAD)):
        (repaired,) = await Served(repair_tool_calls=True).answer(BAD[:length] or " ", finish="length")
        (plain,) = await Served().answer(BAD[:length] or " ", finish="length")
        assert not any(complete for _, _, complete in calls([repaired])) or length >= len(BAD) - len("</tool_call>")
        assert [call for call in calls([repaired]) if not call[2]] == [call for call in calls([plain]) if not call[2]]


async def test_a_call_in_thinking_is_checked_too():
    served = Served()
    (last,) = await served.answer(f"<think>so\n{BAD}")
    assert (reasoning([last]), [name for name, _, _ in calls([last])]) == ("so", ["add"])
    assert served.client.health()["invalid_tool_calls"] == 1


async def test_several_completions_hold_the_calls_in_their_thinking_each_for_itself():
    served = Served()
    stream = await served.submit(n=2)
    texts = [f"<think>so\n{GOOD}{BAD}", f"<think>no\n{GOOD}</think>Done."]
    for one, other in itertools.zip_longest(*(text.encode() for text in texts)):
        for choice, token in enumerate((one, other)):
            if token is not None:
                served.engine.say([token], None, choice)
    for choice in range(2):
        served.engine.say([EOS], "stop", choice)
    outputs = [output for outputs in [outputs async for outputs in stream] for output in outputs]
    first, second = ([output for output in outputs if output.choice == choice] for choice in range(2))
    assert (reasoning(first), content(first), first[-1].finish) == ("so", "", "tool_calls")
    assert calls(first) == [("add", '{"n": 1}', True), ("add", '{"n": "1"}', True)]
    assert (reasoning(second), content(second), second[-1].finish) == (f"no\n{GOOD}", "Done.", "stop")
    assert calls(second) == []
    assert served.client.health()["invalid_tool_calls"] == 1


# -- calls that the client forbade ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [GOOD, f"{GOOD}\n{BAD}", GOOD[:-30], f"<think>hm</think>\n{GOOD}"])
async def test_with_calls_forbidden_neither_calls_nor_their_markers_come_out(text):
    served = Served()
    (last,) = await served.answer(f"{text}", tools=(), tools_enabled=False)
    assert (calls([last]), content([last]).strip(), last.finish) == ([], "", "stop")
    assert served.client.health()["invalid_tool_calls"] == 0


async def test_with_calls_forbidden_a_call_in_thinking_stays_thinking():
    (last,) = await Served().answer(f"<think>so\n{GOOD}", tools=(), tools_enabled=False)
    assert (reasoning([last]), calls([last]), last.finish) == (f"so\n{GOOD}", [], "stop")
