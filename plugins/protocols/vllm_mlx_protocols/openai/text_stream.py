"""A text completion, streamed."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import Output, TextDelta
from vllm_mlx_protocols.http import encode

from .chunks import ChunkEncoder, ChunkFrame
from .logprobs import TextColumns

OBJECT = "text_completion"


class TextStreamEncoder(ChunkEncoder):
    """Encodes one request's chunks. ``echoes`` are what each choice's text starts with."""

    def __init__(
        self, frame: ChunkFrame, *, prompt_tokens: int, n: int, echoes: Sequence[str], logprobs: int | None
    ) -> None:
        super().__init__(frame, prompt_tokens, len(echoes), n)
        self._choices = [_Choice(frame, index, echo, logprobs) for index, echo in enumerate(echoes)]

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

    def __init__(self, frame: ChunkFrame, index: int, echo: str, logprobs: int | None) -> None:
        self._head = frame.opening(index) + b'"text":'
        self._plain_tail = b',"logprobs":null,"finish_reason":null' + frame.closing
        self._closing = frame.closing
        self._echo = echo
        self._columns = None if logprobs is None else TextColumns(with_top=logprobs > 0)

    def add(self, output: Output, pieces: list[bytes]) -> None:
        if self._columns is not None:
            if output.prompt_logprobs:
                self._columns.echo(output.prompt_logprobs, self._echo)
            self._columns.add(output.logprobs)
        text = "".join(event.text for event in output.events if isinstance(event, TextDelta))
        if self._echo:
            text, self._echo = self._echo + text, ""
        if output.finish is not None:
            pieces += (self._head, encode(text), self._tail(output.finish))
        elif text:
            pieces += (self._head, encode(text), self._tail(None))

    def _tail(self, finish: str | None) -> bytes:
        columns = self._columns.take() if self._columns is not None else None
        if finish is None and columns is None:
            return self._plain_tail
        logprobs = b"null" if columns is None else encode(columns)
        reason = b"null" if finish is None else encode(finish)
        return b',"logprobs":' + logprobs + b',"finish_reason":' + reason + self._closing
