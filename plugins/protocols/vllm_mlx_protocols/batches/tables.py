"""What is stored: the tables, and a row of each as a record."""

from __future__ import annotations

from typing import NamedTuple

LAYOUT = 1
"""Which tables a file has; a change of SCHEMA that older files do not fit needs the next number."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, purpose TEXT NOT NULL,
    filename TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
    is_complete INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS files_owner ON files (owner, created_at, seq);
CREATE INDEX IF NOT EXISTS files_expires ON files (expires_at);
CREATE TABLE IF NOT EXISTS pieces (
    file TEXT NOT NULL REFERENCES files (id) ON DELETE CASCADE, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (file, number)
);
CREATE TABLE IF NOT EXISTS batches (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, server TEXT NOT NULL, served TEXT NOT NULL,
    status TEXT NOT NULL, outcome TEXT, endpoint TEXT NOT NULL, model TEXT, input_file TEXT NOT NULL,
    output_file TEXT NOT NULL, error_file TEXT NOT NULL, output_lifetime_s INTEGER, metadata TEXT, errors TEXT,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, in_progress_at INTEGER, finalizing_at INTEGER,
    completed_at INTEGER, failed_at INTEGER, expired_at INTEGER, cancelling_at INTEGER, cancelled_at INTEGER,
    ended_at INTEGER, total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS batches_owner ON batches (owner, seq);
CREATE INDEX IF NOT EXISTS batches_ended ON batches (ended_at);
CREATE TABLE IF NOT EXISTS tasks (
    batch TEXT NOT NULL REFERENCES batches (id) ON DELETE CASCADE, number INTEGER NOT NULL, custom_id TEXT NOT NULL,
    start INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (batch, number)
) WITHOUT ROWID;
"""

BEING_READ = "SELECT input_file FROM batches WHERE ended_at IS NULL"
"""The files that batches still read."""


class File(NamedTuple):
    """A file. Its content is ``pieces`` in the order of their numbers; it is listed when it ``is_complete``."""

    seq: int
    id: str
    owner: str
    purpose: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None
    is_complete: bool


class Batch(NamedTuple):
    """A batch. Times are in Unix seconds.

    ``server`` is the one that works on it, ``served`` names its models. ``outcome`` is the status that it ends with,
    known from when it is finalizing; ``errors`` and ``metadata`` are JSON. ``output_file`` and ``error_file`` are where
    results go, one piece each with the number of its line; a file without any result is deleted in the end.
    """

    seq: int
    id: str
    owner: str
    server: str
    served: str
    status: str
    outcome: str | None
    endpoint: str
    model: str | None
    input_file: str
    output_file: str
    error_file: str
    output_lifetime_s: int | None
    metadata: str | None
    errors: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    ended_at: int | None
    total: int
    completed: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


class Task(NamedTuple):
    """A line that has no result yet: ``size`` bytes from ``start`` on in the input file. ``number`` counts from 1."""

    batch: str
    number: int
    custom_id: str
    start: int
    size: int
