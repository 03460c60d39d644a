"""What the streams of both generating endpoints share: how a chunk is framed, and how a stream ends.

Everything that is the same in all chunks of a stream is encoded once, when the stream is made.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mlx_core.api import EngineFailed, Output, RequestError, Usage
from vllm_mlx_protocols.http import encode

from .errors import envelope
from .usage import report

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"


class ChunkFrame:
    """The bytes around the choices of each chunk. With ``include_usage`` each has a usage, null until the end."""

    def __init__(self, object_name: str, *, response_id: str, created: int, model: str, include_usage: bool) -> None:
        head = encode({"id": response_id, "object": object_name, "created": created, "model": model})
        self._opening = b"data: " + head[:-1] + b',"choices":['
        self.closing = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._include_usage = include_usage

    def opening(self, index: int) -> bytes:
        """Return the start of a chunk, up to the first field after the choice's index."""
        return self._opening + b'{"index":%d,' % index

    def usage(self, prompt_tokens: int, usages: Sequence[Usage], n: int) -> bytes:
        """Return the usage chunk, or nothing if the client did not ask for it."""
        if not self._include_usage:
            return b""
        return self._opening + b'],"usage":' + encode(report(prompt_tokens, usages, n=n)) + b"}\n\n"


class ChunkEncoder:
    """The part of a ``StreamEncoder`` that is the same for both endpoints."""

    def __init__(self, frame: ChunkFrame, prompt_tokens: int, count: int, n: int) -> None:
        self.frame = frame
        self._prompt_tokens = prompt_tokens
        self._n = n
        self._usages: list[Usage | None] = [None] * count

    def start(self) -> bytes:
        """Send nothing: the first chunk goes with the first token, so that its time means something."""
        return b""

    def note_end(self, output: Output) -> None:
        """Remember that a completion ended. Mutates."""
        self._usages[output.choice] = output.usage or Usage()

    def finish(self) -> bytes:
        """Return usage and ``[DONE]``. Raises EngineFailed if a completion never ended."""
        usages = [usage for usage in self._usages if usage is not None]
        if len(usages) < len(self._usages):
            raise EngineFailed("The engine stopped before the answer was complete.")
        return self.frame.usage(self._prompt_tokens, usages, self._n) + DONE

    def error(self, error: RequestError) -> bytes:
        """Return the error as the last event: no finish reason and no ``[DONE]`` follow."""
        return b"data: " + encode(envelope(error)) + b"\n\n"

    def keep_alive(self) -> bytes:
        """Return a comment, which clients skip."""
        return KEEP_ALIVE
