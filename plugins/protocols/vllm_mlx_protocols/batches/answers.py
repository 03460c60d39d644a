"""What comes of one line: a line of the output file, or of the error file. Pure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from vllm_mlx_core.api import RequestError, Usage
from vllm_mlx_protocols.http import encode
from vllm_mlx_protocols.openai.errors import envelope


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON line, with its end; whether it belongs into the error file; what it took."""

    line: bytes
    has_failed: bool
    usage: Usage


def answered(custom_id: str, request_id: str, body: Any, usage: Usage) -> Answer:
    """Return the result of a line that was answered."""
    return Answer(_line(custom_id, _response(200, request_id, body), None), False, usage)


def refused(custom_id: str, request_id: str, error: RequestError) -> Answer:
    """Return the result of a line that failed, as the client would have been told."""
    return Answer(_line(custom_id, _response(error.status, request_id, envelope(error)), None), True, Usage())


def not_run(custom_id: str) -> Answer:
    """Return the result of a line that the batch did not come to."""
    message = "This request could not be executed before the completion window expired."
    return Answer(_line(custom_id, None, {"code": "batch_expired", "message": message}), True, Usage())


def _response(status: int, request_id: str, body: Any) -> dict[str, Any]:
    return {"status_code": status, "request_id": request_id, "body": body}


def _line(custom_id: str, response: dict[str, Any] | None, error: dict[str, Any] | None) -> bytes:
    identity = {"id": f"batch_req_{secrets.token_hex(12)}", "custom_id": custom_id}
    return encode({**identity, "response": response, "error": error}) + b"\n"
