"""Where responses are kept, and how many: command-line options and what they mean."""

from __future__ import annotations

import argparse

from vllm_mlx_core.api import Settings
from vllm_mlx_protocols.database import MEMORY, open_wanted
from vllm_mlx_protocols.options import DAY_S, MB, file_name, positive

from .store import Store

MAX_AGE_DAYS = 30.0
MAX_MB = 512.0
FILE = "responses.db"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("stored responses")
    group.add_argument(
        "--responses-db",
        metavar="FILE",
        type=file_name,
        help=f"SQLite database of stored responses, or {MEMORY} (default: {FILE} in the state directory)",
    )
    group.add_argument(
        "--responses-max-age-days",
        metavar="DAYS",
        type=positive,
        default=MAX_AGE_DAYS,
        help="forget responses that were not used for so long (default: %(default)g)",
    )
    group.add_argument(
        "--responses-max-mb",
        metavar="MB",
        type=positive,
        default=MAX_MB,
        help="forget the least recently used responses beyond this size (default: %(default)g)",
    )


def check_options(settings: Settings) -> None:
    """Raise UsageError if the file that the operator named cannot be used."""
    if settings.plugin_options.get("responses_db") is not None:
        open_store(settings).close()


def open_store(settings: Settings) -> Store:
    """Return the store that the operator asked for. Raises UsageError if the file that they named cannot be used."""
    wanted = settings.plugin_options
    max_age_s = wanted.get("responses_max_age_days", MAX_AGE_DAYS) * DAY_S
    max_bytes = int(wanted.get("responses_max_mb", MAX_MB) * MB)
    return open_wanted(
        lambda path: Store(path, max_age_s=max_age_s, max_bytes=max_bytes),
        settings,
        option="responses_db",
        file=FILE,
        what="responses",
    )
