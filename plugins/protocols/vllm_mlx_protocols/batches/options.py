"""Where files and batches are kept, and how many: command-line options and what they mean."""

from __future__ import annotations

import argparse

from vllm_mlx_core.api import Settings
from vllm_mlx_protocols.database import MEMORY, Database, open_wanted
from vllm_mlx_protocols.options import DAY_S, MB, file_name, positive

from .tables import SCHEMA

MAX_AGE_DAYS = 30.0
MAX_MB = 1024.0
FILE = "batches.db"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("files and batches")
    group.add_argument(
        "--batches-db",
        metavar="FILE",
        type=file_name,
        help=f"SQLite database of files and batches, or {MEMORY} (default: {FILE} in the state directory)",
    )
    group.add_argument(
        "--batches-max-age-days",
        metavar="DAYS",
        type=positive,
        default=MAX_AGE_DAYS,
        help="how long files and finished batches are kept (default: %(default)g)",
    )
    group.add_argument(
        "--batches-max-mb",
        metavar="MB",
        type=positive,
        default=MAX_MB,
        help="most that files and results may have together (default: %(default)g)",
    )


def check_options(settings: Settings) -> None:
    """Raise UsageError if the file that the operator named cannot be used."""
    if settings.plugin_options.get("batches_db") is not None:
        open_database(settings).close()


def open_database(settings: Settings) -> Database:
    """Return the database that the operator asked for. Raises UsageError if the file that they named cannot be used."""
    return open_wanted(
        lambda path: Database(path, schema=SCHEMA, what="batches"),
        settings,
        option="batches_db",
        file=FILE,
        what="files and batches",
    )


def max_age_s(settings: Settings) -> float:
    """Return how long things are kept."""
    return float(settings.plugin_options.get("batches_max_age_days", MAX_AGE_DAYS)) * DAY_S


def max_bytes(settings: Settings) -> int:
    """Return how much files may have together."""
    return int(settings.plugin_options.get("batches_max_mb", MAX_MB) * MB)
