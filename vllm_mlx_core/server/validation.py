"""From a failed validation to one sentence that names the field as the client wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from vllm_mlx_core.api import InvalidRequest


def describe(failure: RequestValidationError) -> InvalidRequest:
    """Return the error to show.

    A field that may have several types fails once per type; the failures that reach deepest into the body are those
    of the type the client meant.
    """
    found = [(_field(error["loc"], failure.body), error) for error in failure.errors()]
    depth, field = max(((len(path), path) for path, _ in found), key=lambda each: each[0])
    reasons = list(dict.fromkeys(_reason(error, failure.body) for path, error in found if path == field))
    name = _spell(field) if depth else None
    text = " or ".join(reasons[:4])
    return InvalidRequest(f"{name}: {text}." if name else f"{text}.", param=name)


def _field(location: Sequence[int | str], body: Any) -> tuple[int | str, ...]:
    """Return the part of a pydantic location that exists in the request.

    pydantic adds the names of the types it tried; they are nowhere in the body. A missing field is not there either,
    but it is always the last part and its parent is an object.
    """
    source, *parts = location
    if source != "body":
        return tuple(parts)
    path: list[int | str] = []
    here = body
    for number, part in enumerate(parts, 1):
        inside, value = _step(here, part)
        if inside:
            here = value
        elif not (isinstance(here, dict) and isinstance(part, str) and number == len(parts)):
            continue
        path.append(part)
    return tuple(path)


def _step(here: Any, part: int | str) -> tuple[bool, Any]:
    if isinstance(here, dict) and part in here:
        return True, here[part]
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return True, here[part]
    return False, None


def _spell(field: Sequence[int | str]) -> str:
    """Write a path as ``messages[0].content``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in field)
    return text.removeprefix(".")[:200]


def _reason(error: Any, body: Any) -> str:
    if error["type"] == "json_invalid":
        return f"The request body is not valid JSON: {error['ctx']['error']} at position {error['loc'][-1]}"
    if tuple(error["loc"]) == ("body",):
        if body is None:
            return "The request has no body"
        if isinstance(body, bytes):
            return "The request body is not JSON: send it with the header Content-Type: application/json"
        return "The request body must be a JSON object"
    message: str = error["msg"]
    if error["type"] == "missing":
        return "this field is required"
    return (message[:1].lower() + message[1:])[:500]
