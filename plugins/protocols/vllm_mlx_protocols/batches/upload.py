"""Reads the form with which a file is uploaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from vllm_mlx_core.api import InvalidRequest
from vllm_mlx_protocols.reading import read

from .limits import MAX_FILE_NAME_CHARS, MAX_LIFETIME_S, MIN_LIFETIME_S
from .schema import UploadFields

_MAX_FIELDS = 16
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_PROPERTIES: Mapping[str, Any] = {
    "file": {"type": "string", "format": "binary", "description": "JSON Lines in UTF-8, a request in each."},
    "purpose": {"type": "string", "enum": ["batch"]},
    _ANCHOR: {"type": "string", "enum": ["created_at"]},
    _SECONDS: {"type": "integer", "minimum": MIN_LIFETIME_S, "maximum": MAX_LIFETIME_S},
}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["file", "purpose"], "properties": _PROPERTIES}
            }
        },
    }
}
"""What the description of the route says of its body."""


class Upload(NamedTuple):
    """A file as it came: its name is only text. ``lifetime_s`` is how long it is to be kept, if the client says so."""

    name: str
    source: BinaryIO
    size: int
    lifetime_s: int | None


@asynccontextmanager
async def reading_upload(request: Request) -> AsyncIterator[Upload]:
    """Give the upload of a request, to be read before this is left. Raises InvalidRequest."""
    async with request.form(max_files=1, max_fields=_MAX_FIELDS) as form:
        fields = read(UploadFields, _nested(form), "")
        file = form.get("file")
        if file is None:
            raise InvalidRequest("file: this field is required.", param="file")
        if not isinstance(file, UploadFile):
            raise InvalidRequest("file: this must be a file, with a name.", param="file")
        expiry = fields.expires_after
        yield Upload(_base_name(file.filename), file.file, file.size or 0, None if expiry is None else expiry.seconds)


def _nested(form: FormData) -> dict[str, Any]:
    """Return the fields as JSON would have them: a number that comes as text is one."""
    given: dict[str, Any] = {name: form[name] for name in UploadFields.model_fields if name in form}
    expiry: dict[str, Any] = {
        name: form[key] for name, key in (("anchor", _ANCHOR), ("seconds", _SECONDS)) if key in form
    }
    seconds = expiry.get("seconds")
    if isinstance(seconds, str) and seconds.isascii() and seconds.isdigit() and len(seconds) < 20:
        expiry["seconds"] = int(seconds)
    return {**given, "expires_after": expiry} if expiry else given


def _base_name(name: str | None) -> str:
    """Return the last part of a name, without control characters."""
    last = PurePosixPath((name or "").replace("\\", "/")).name
    return "".join(letter for letter in last if letter.isprintable())[:MAX_FILE_NAME_CHARS] or "file"
