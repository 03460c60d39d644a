"""A response, streamed: every event with its name and number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm_mlx_core.api import Output, RequestError
from vllm_mlx_protocols.http import encode

from .job import Job
from .response import error_code, failed
from .speech import Event

KEEP_ALIVE = b": keep-alive\n\n"


class ResponseStreamEncoder:
    """Encodes one response's events. The last is ``response.completed``, ``.incomplete`` or ``.failed``."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._number = 0

    def start(self) -> bytes:
        """Say that the response exists and is being made."""
        return self._encode(
            {"type": name, "response": self._job.response} for name in ("response.created", "response.in_progress")
        )

    def feed(self, outputs: Sequence[Output]) -> bytes:
        """Return the events of what one step added. Mutates."""
        return self._encode(self._job.recorder.add(outputs))

    def finish(self) -> bytes:
        """Return the terminal event. Raises EngineFailed if the completion never ended."""
        response = self._job.conclude()
        return self._encode([{"type": f"response.{response['status']}", "response": response}])

    def error(self, error: RequestError) -> bytes:
        """Return the error on its own, and then the response that failed with it."""
        code = error_code(error)
        return self._encode(
            [
                {"type": "error", "code": code, "message": error.message, "param": error.param},
                {"type": "response.failed", "response": failed(self._job.response, error, [])},
            ]
        )

    def keep_alive(self) -> bytes:
        """Return a comment, which clients skip."""
        return KEEP_ALIVE

    def _encode(self, events: Iterable[Event]) -> bytes:
        pieces: list[bytes] = []
        for event in events:
            numbered = {"type": event["type"], "sequence_number": self._number, **event}
            self._number += 1
            pieces += (b"event: ", event["type"].encode(), b"\ndata: ", encode(numbered), b"\n\n")
        return b"".join(pieces)
