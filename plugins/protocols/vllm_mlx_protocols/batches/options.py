"""Where files and batches are kept, and how many."""

from __future__ import annotations

from vllm_mlx_core.api import Settings
from vllm_mlx_protocols.database import Database
from vllm_mlx_protocols.storage import Storage

from .tables import LAYOUT, SCHEMA

STORAGE = Storage(
    "batches",
    what="files and batches",
    max_mb=1024.0,
    age_help="how long files and finished batches are kept",
    size_help="most that files and results may have together",
)
add_options = STORAGE.add_options


def check_options(settings: Settings) -> None:
    """Raise UsageError if the file that the operator named cannot be used."""
    if STORAGE.is_named(settings):
        open_database(settings).close()


def open_database(settings: Settings) -> Database:
    """Return the database that the operator asked for. Raises UsageError if the file that they named cannot be used."""
    return STORAGE.open(settings, lambda path: Database(path, schema=SCHEMA, layout=LAYOUT, what="batches"))
