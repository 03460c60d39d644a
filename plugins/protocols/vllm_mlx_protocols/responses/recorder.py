"""What the model says becomes output items, and the events that tell a client of them.

An answer in one piece is what is recorded when nobody listens to the events, so it is the same as a stream's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from vllm_mlx_core.api import (
    FinishReason,
    Output,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from vllm_mlx_protocols.openai.logprobs import chat_logprobs

from .items import new_id
from .speech import Event, Speech, added, done, of_item
from .tools import CUSTOM_INPUT


class Recorder:
    """Records one response. ``output`` holds its items, in the order of their ``output_index``.

    ``custom`` names the tools that take a text, ``seals`` asks for encrypted reasoning, ``summarises`` for reasoning
    where a summary would be. A call to a custom tool appears when it is complete: half a text would run as a whole one.
    """

    def __init__(self, *, custom: frozenset[str] = frozenset(), seals: bool = False, summarises: bool = False) -> None:
        self.output: list[dict[str, Any]] = []
        self.finish: FinishReason | None = None
        self.usage: Usage | None = None
        self._custom = custom
        self._seals = seals
        self._summarises = summarises
        self._speech: Speech | None = None
        self._blank = ""
        self._logprobs: list[TokenLogprobs] = []
        self._calls: dict[int, tuple[int, dict[str, Any]]] = {}
        self._custom_calls: dict[int, dict[str, Any]] = {}

    def add(self, outputs: Sequence[Output]) -> Iterator[Event]:
        """Yield the events of what one step added; must be exhausted. Mutates."""
        for output in outputs:
            self._logprobs += output.logprobs
            for event in output.events:
                match event:
                    case TextDelta(text):
                        yield from self._say("message", text)
                    case ReasoningDelta(text):
                        yield from self._say("reasoning", text)
                    case ToolCallStart(index, id, name):
                        yield from self._start_call(index, id, name)
                    case ToolCallArguments(index, piece):
                        yield from self._grow_call(index, piece)
                    case ToolCallEnd(index):
                        yield from self._end_call(index)
            if output.finish is not None:
                self.finish, self.usage = output.finish, output.usage
                yield from self._end()

    def _say(self, kind: str, text: str) -> Iterator[Event]:
        if self._speech is None or self._speech.kind != kind:
            if kind == "message" and not (self._blank + text).strip():
                self._blank += text  # the line breaks between thoughts and calls are no answer
                return
            yield from self._hush()
            text = self._blank + text if kind == "message" else text
            self._blank = ""
            yield from self._open_speech(kind)
        assert self._speech is not None
        wanted = self._logprobs if kind == "message" else []
        logprobs = msgspec.to_builtins(chat_logprobs(wanted).content) if wanted else []
        self._logprobs = []
        yield self._speech.grow(text, logprobs)

    def _open_speech(self, kind: str) -> Iterator[Event]:
        self._speech = Speech(kind, len(self.output), summarised=self._summarises)
        self.output.append(self._speech.item)
        yield from self._speech.open()

    def _hush(self, status: str = "completed") -> Iterator[Event]:
        if self._speech is not None:
            yield from self._speech.close(status, seals=self._seals)
        self._speech = None

    def _start_call(self, index: int, call_id: str, name: str) -> Iterator[Event]:
        yield from self._hush()
        self._blank, self._logprobs = "", []
        if name in self._custom:
            item = {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": ""}
            self._custom_calls[index] = {"id": new_id("ctc"), **item}
            return
        item = {"type": "function_call", "status": "in_progress", "arguments": "", "call_id": call_id, "name": name}
        item = {"id": new_id("fc"), **item}
        self._calls[index] = (len(self.output), item)
        self.output.append(item)
        yield added(len(self.output) - 1, item)

    def _grow_call(self, index: int, piece: str) -> Iterator[Event]:
        if index in self._custom_calls:
            self._custom_calls[index]["input"] += piece
            return
        place, item = self._calls[index]
        item["arguments"] += piece
        yield of_item("response.function_call_arguments.delta", place, item, delta=piece)

    def _end_call(self, index: int) -> Iterator[Event]:
        if index in self._custom_calls:
            yield from self._make_custom_call(self._custom_calls.pop(index))
            return
        place, item = self._calls[index]
        if not item["arguments"]:  # clients parse what they joined, and "" is not JSON
            yield from self._grow_call(index, "{}")
        del self._calls[index]
        item["status"] = "completed"
        yield of_item("response.function_call_arguments.done", place, item, arguments=item["arguments"])
        yield done(place, item)

    def _make_custom_call(self, item: dict[str, Any]) -> Iterator[Event]:
        place, text = len(self.output), _custom_input(item["input"])
        yield added(place, {**item, "input": ""})
        item["input"] = text
        self.output.append(item)
        yield of_item("response.custom_tool_call_input.delta", place, item, delta=text)
        yield of_item("response.custom_tool_call_input.done", place, item, input=text)
        yield done(place, item)

    def _end(self) -> Iterator[Event]:
        """Close what is open. An answer without any item gets an empty message, as clients expect one."""
        if not self.output and self._speech is None:
            yield from self._open_speech("message")
            if self._blank and self._speech is not None:
                yield self._speech.grow(self._blank, [])
        yield from self._hush("incomplete" if self.finish == "length" else "completed")
        for place, item in self._calls.values():
            item["status"] = "incomplete"
            yield done(place, item)
        self._calls.clear()


def _custom_input(arguments: str) -> str:
    """Return the text a custom tool is called with: the one argument, or all there is if the model did not use it."""
    value = json.loads(arguments or "{}")
    text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
