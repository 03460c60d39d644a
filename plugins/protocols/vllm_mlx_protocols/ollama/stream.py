"""An answer, streamed: one JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import (
    Output,
    ReasoningDelta,
    RequestError,
    TextDelta,
    TokenLogprobs,
    ToolCall,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from vllm_mlx_protocols.http import encode

from .errors import envelope
from .response import Kind, answer, done_reason, tool_call
from .timing import TimedOutputs

NDJSON = "application/x-ndjson"
_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in ("\x85", "\u2028", "\u2029"))
"""Characters that JSON leaves as they are and at which clients split lines all the same; Ollama's own does."""


def line(value: Any) -> bytes:
    """Return a value's JSON as one line, whatever a client takes for the end of one."""
    data = encode(value)
    for end, escaped in _LINE_ENDS:
        if end in data:
            data = data.replace(end, escaped)
    return data + b"\n"


class LineEncoder:
    """Encodes one answer (an ``api.StreamEncoder``). A call is sent when it is complete, in one piece."""

    def __init__(self, kind: Kind, model: str, outputs: TimedOutputs, *, show_thinking: bool) -> None:
        self._kind = kind
        self._model = model
        self._outputs = outputs
        self._show_thinking = show_thinking
        self._call = ToolCall("", "")
        self._logprobs: list[TokenLogprobs] = []
        self._last: Output | None = None

    def start(self) -> bytes:
        """Return nothing: the first line goes with the first token."""
        return b""

    def feed(self, outputs: Sequence[Output]) -> bytes:
        """Return one line for what one step added, if that is something to show. Mutates."""
        lines = []
        for output in outputs:
            self._logprobs += output.logprobs
            if output.finish is not None:
                self._last = output
            if said := self._said(output):
                lines.append(line(answer(self._kind, self._model, logprobs=self._take_logprobs(), **said)))
        return b"".join(lines)

    def finish(self) -> bytes:
        """Return the line that is done. Raises EngineFailed if the answer never ended."""
        last = self._last
        ending = {
            "done_reason": done_reason(last.finish if last else None),
            **self._outputs.metrics((last and last.usage) or Usage()),
        }
        return line(answer(self._kind, self._model, logprobs=self._take_logprobs(), ending=ending))

    def error(self, error: RequestError) -> bytes:
        """Return the error as the last line."""
        return line(envelope(error))

    def keep_alive(self) -> bytes:
        """Return nothing: there is no line that clients skip."""
        return b""

    def _said(self, output: Output) -> dict[str, Any]:
        """Return what an output adds to the answer, as arguments of ``answer``."""
        text = thinking = ""
        calls = []
        for event in output.events:
            match event:
                case TextDelta(more):
                    text += more
                case ReasoningDelta(more):
                    thinking += more if self._show_thinking else ""
                case ToolCallStart(_, id, name):
                    self._call = ToolCall(id, name)
                case ToolCallArguments(_, json):
                    self._call.arguments += json
                case ToolCallEnd(index):
                    calls.append(tool_call(index, self._call.id, self._call.name, self._call.arguments))
        said = {"text": text, "thinking": thinking, "calls": calls}
        return {name: value for name, value in said.items() if value}

    def _take_logprobs(self) -> list[TokenLogprobs]:
        taken, self._logprobs = self._logprobs, []
        return taken
