"""A message, streamed: one engine step's outputs become Anthropic's events, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from vllm_mlx_core.api import (
    EngineFailed,
    Event,
    Output,
    ReasoningDelta,
    RequestError,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from vllm_mlx_protocols.http import encode

from .errors import envelope
from .response import SIGNATURE, Message, UsageReport, report, stopping

_DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
"""Written out, as there is one for each token."""
_TEXT = (b"text_delta", b"text")
_THINKING = (b"thinking_delta", b"thinking")
_SIGNATURE = (b"signature_delta", b"signature")
_INPUT = (b"input_json_delta", b"partial_json")


class MessageStreamEncoder:
    """Encodes one message (an ``api.StreamEncoder``). Blocks follow each other, and one is stopped before the next.

    The message starts with the first output, as only then is known how much of the prompt was cached.
    """

    def __init__(
        self, *, message_id: str, model: str, prompt_tokens: int, stop_sequences: Sequence[str], show_thinking: bool
    ) -> None:
        self._message_id = message_id
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._stop_sequences = stop_sequences
        self._show_thinking = show_thinking
        self._started = False
        self._blocks = _Blocks()
        self._open_calls = 0
        self._last: Output | None = None

    def start(self) -> bytes:
        """Return nothing: the first output starts the message."""
        return b""

    def feed(self, outputs: Sequence[Output]) -> bytes:
        """Return the events of what one step added. Mutates."""
        pieces: list[bytes] = []
        for output in outputs:
            if not self._started:
                self._started = True
                pieces.append(self._opening(output.cached_tokens))
            for event in output.events:
                self._add(event, pieces)
            if output.finish is not None:
                self._last = output
        return b"".join(pieces)

    def finish(self) -> bytes:
        """Return the end of the open block and of the message. Raises EngineFailed if no output finished it."""
        last = self._last
        if last is None or last.usage is None:
            raise EngineFailed("The answer ended before it was complete.")
        reason, sequence = stopping(last.finish, last.stop, self._stop_sequences, cut_off=self._open_calls > 0)
        pieces: list[bytes] = []
        self._blocks.close(pieces)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = report(self._prompt_tokens, last.usage)
        pieces += (_event("message_delta", delta=delta, usage=usage), _event("message_stop"))
        return b"".join(pieces)

    def error(self, error: RequestError) -> bytes:
        """Return the error event."""
        return b"event: error\ndata: " + encode(envelope(error)) + b"\n\n"

    def keep_alive(self) -> bytes:
        """Return a ping."""
        return _event("ping")

    def _opening(self, cached_tokens: int) -> bytes:
        usage = UsageReport(
            input_tokens=self._prompt_tokens - cached_tokens, cache_read_input_tokens=cached_tokens, output_tokens=0
        )
        return _event("message_start", message=Message(id=self._message_id, model=self._model, usage=usage))

    def _add(self, event: Event, pieces: list[bytes]) -> None:
        blocks = self._blocks
        match event:
            case TextDelta(text):
                if text:
                    blocks.enter("text", pieces)
                    blocks.add(_TEXT, text, pieces)
            case ReasoningDelta(text):
                if text:
                    blocks.enter("thinking", pieces)
                    if self._show_thinking:
                        blocks.add(_THINKING, text, pieces)
            case ToolCallStart(_, id, name):
                self._open_calls += 1
                blocks.open({"type": "tool_use", "id": id, "name": name, "input": {}}, pieces)
            case ToolCallArguments(_, json):
                blocks.add(_INPUT, json, pieces)
            case ToolCallEnd():
                self._open_calls -= 1
                if not blocks.has_deltas:  # clients parse what they joined, and "" is not JSON
                    blocks.add(_INPUT, "{}", pieces)
                blocks.close(pieces)


class _Blocks:
    """The blocks of a message, of which at most the last one is open. Appends to ``pieces`` what it has to say."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None
        self.has_deltas = False

    def enter(self, kind: Literal["text", "thinking"], pieces: list[bytes]) -> None:
        """Make sure that the open block is of this kind."""
        if self._open != kind:
            self.open({"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {}), pieces)

    def open(self, block: dict[str, Any], pieces: list[bytes]) -> None:
        """Begin a new block."""
        self.close(pieces)
        self._index += 1
        self._open = block["type"]
        self.has_deltas = False
        pieces.append(_event("content_block_start", index=self._index, content_block=block))

    def add(self, kind: tuple[bytes, bytes], value: str, pieces: list[bytes]) -> None:
        """Add to the open block."""
        self.has_deltas = True
        pieces.append(_DELTA % (self._index, *kind, encode(value)))

    def close(self, pieces: list[bytes]) -> None:
        """Stop the open block, if there is one; a thought is signed first."""
        if self._open is None:
            return
        if self._open == "thinking":
            self.add(_SIGNATURE, SIGNATURE, pieces)
        self._open = None
        pieces.append(_event("content_block_stop", index=self._index))


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode({"type": name, **fields}))
