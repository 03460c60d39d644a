"""OpenAI's objects, of what is stored. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from .lines import Fault
from .tables import Batch, File

_TIMES = ("in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def file_object(file: File) -> dict[str, Any]:
    """Return a file as clients see it."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    """Return a batch as clients see it. Its results have names when they are complete."""
    has_ended = batch.ended_at is not None
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": batch.errors and json.loads(batch.errors),
        "input_file_id": batch.input_file,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file if has_ended and batch.completed else None,
        "error_file_id": batch.error_file if has_ended and batch.failed else None,
        "created_at": batch.created_at,
        **{f"{name}_at": getattr(batch, f"{name}_at") for name in _TIMES},
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": {
            "input_tokens": batch.input_tokens,
            "input_tokens_details": {"cached_tokens": batch.cached_tokens},
            "output_tokens": batch.output_tokens,
            "output_tokens_details": {"reasoning_tokens": batch.reasoning_tokens},
            "total_tokens": batch.input_tokens + batch.output_tokens,
        },
        "metadata": batch.metadata and json.loads(batch.metadata),
    }


def errors_json(faults: Iterable[Fault]) -> str:
    """Return the ``errors`` of a batch."""
    return json.dumps({"object": "list", "data": [fault._asdict() for fault in faults]})


def page(objects: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return one page of a list."""
    return {
        "object": "list",
        "data": objects,
        "first_id": objects[0]["id"] if objects else None,
        "last_id": objects[-1]["id"] if objects else None,
        "has_more": has_more,
    }
