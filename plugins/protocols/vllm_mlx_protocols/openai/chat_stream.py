"""A chat completion, streamed: one engine step's outputs become chunks, as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vllm_mlx_core.api import (
    Event,
    Output,
    ReasoningDelta,
    TextDelta,
    TokenLogprobs,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from vllm_mlx_protocols.http import encode

from .chunks import ChunkEncoder, ChunkFrame
from .logprobs import chat_logprobs
from .reasoning import ReasoningField

OBJECT = "chat.completion.chunk"
_ROLE = b'"role":"assistant","content":"","refusal":null'


class ChatStreamEncoder(ChunkEncoder):
    """Encodes one request's chunks. Role first; each call's id and name once; the finish reason once and last.

    Reasoning goes under each of the names ``reasoning_fields``; without any it is left out. ``echo`` is the text that
    each answer starts with.
    """

    def __init__(
        self,
        frame: ChunkFrame,
        *,
        prompt_tokens: int,
        n: int,
        reasoning_fields: Sequence[ReasoningField],
        echo: str = "",
    ) -> None:
        super().__init__(frame, prompt_tokens, n, n)
        self._choices = [_Choice(frame, index, reasoning_fields, echo) for index in range(n)]

    def feed(self, outputs: Sequence[Output]) -> bytes:
        """Return the chunks of what one step added. Mutates."""
        pieces: list[bytes] = []
        for output in outputs:
            self._choices[output.choice].add(output, pieces)
            if output.finish is not None:
                self.note_end(output)
        return b"".join(pieces)


class _Choice:
    """One completion of the request."""

    def __init__(self, frame: ChunkFrame, index: int, reasoning_fields: Sequence[ReasoningField], echo: str) -> None:
        self._head = frame.opening(index) + b'"delta":{'
        self._plain_tail = b'},"logprobs":null,"finish_reason":null' + frame.closing
        self._closing = frame.closing
        self._reasoning_keys = [b'"%s":' % name.encode() for name in reasoning_fields]
        self._echo = echo
        self._started = False
        self._logprobs: list[TokenLogprobs] = []
        self._has_arguments = False

    def add(self, output: Output, pieces: list[bytes]) -> None:
        if not self._started:
            self._started = True
            pieces += (self._head, _ROLE, self._plain_tail)
            if self._echo:
                pieces += (self._head, b'"content":', encode(self._echo), self._plain_tail)
        if output.logprobs:
            self._logprobs += output.logprobs
        events = output.events
        if len(events) == 1 and type(event := events[0]) is TextDelta and not self._logprobs:
            pieces += (self._head, b'"content":', encode(event.text), self._plain_tail)
        elif events:
            for delta in self._deltas(events):
                pieces += (self._head, delta, self._tail())
        if output.finish is not None:
            pieces += (self._head, self._tail(output.finish))

    def _deltas(self, events: Sequence[Event]) -> Iterator[bytes]:
        """Yield the inside of each delta; neighbours that say more of the same thing make one."""
        for event in _joined(events):
            match event:
                case TextDelta(text):
                    yield b'"content":' + encode(text)
                case ReasoningDelta(text):
                    if self._reasoning_keys:
                        thought = encode(text)
                        yield b",".join([key + thought for key in self._reasoning_keys])
                case ToolCallStart(index, id, name):
                    self._has_arguments = False
                    function = encode({"name": name, "arguments": ""})
                    yield (
                        b'"tool_calls":[{"index":%d,"id":' % index
                        + encode(id)
                        + b',"type":"function","function":'
                        + function
                        + b"}]"
                    )
                case ToolCallArguments(index, json):
                    self._has_arguments = True
                    yield _arguments(index, json)
                case ToolCallEnd(index):
                    if not self._has_arguments:  # clients parse what they joined, and "" is not JSON
                        yield _arguments(index, "{}")

    def _tail(self, finish: str | None = None) -> bytes:
        if finish is None and not self._logprobs:
            return self._plain_tail
        logprobs = encode(chat_logprobs(self._logprobs)) if self._logprobs else b"null"
        self._logprobs = []
        reason = b"null" if finish is None else encode(finish)
        return b'},"logprobs":' + logprobs + b',"finish_reason":' + reason + self._closing


def _arguments(index: int, json: str) -> bytes:
    return b'"tool_calls":[{"index":%d,"function":{"arguments":' % index + encode(json) + b"}}]"


def _joined(events: Sequence[Event]) -> Iterator[Event]:
    last: Event | None = None
    for event in events:
        match last, event:
            case TextDelta(before), TextDelta(text):
                last = TextDelta(before + text)
                continue
            case ReasoningDelta(before), ReasoningDelta(text):
                last = ReasoningDelta(before + text)
                continue
            case ToolCallArguments(index, before), ToolCallArguments(same, json) if index == same:
                last = ToolCallArguments(index, before + json)
                continue
        if last is not None:
            yield last
        last = event
    if last is not None:
        yield last
