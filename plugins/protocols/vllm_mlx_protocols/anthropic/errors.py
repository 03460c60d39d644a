"""Anthropic's error envelope."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm_mlx_core.api import InvalidRequest, RequestError
from vllm_mlx_protocols.http import documented_errors

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


DOCUMENTED_ERRORS = documented_errors(
    "Anthropic's error envelope",
    type={"const": "error"},
    error={
        "type": "object",
        "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        "required": ["type", "message"],
    },
    request_id={"type": "string"},
)


class NoThreads(InvalidRequest):
    """The server keeps no conversation. Anthropic's own clients go on without when they are told so in its words."""

    details: ClassVar = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}

    def __init__(self) -> None:
        super().__init__("thread: conversations are not kept; send all messages.", param="thread")


def envelope(error: RequestError) -> dict[str, Any]:
    """Return the error as Anthropic says it; its types name what they know, the others by whose fault it is."""
    fallback = "invalid_request_error" if error.status < 499 else "api_error"
    said: dict[str, Any] = {"type": _TYPES.get(error.status, fallback), "message": error.message}
    if isinstance(error, NoThreads):
        said["details"] = error.details
    body = {"type": "error", "error": said}
    return body if error.request_id is None else {**body, "request_id": error.request_id}
