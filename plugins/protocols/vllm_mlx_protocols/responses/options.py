"""Where responses are kept, and how many: command-line options and what they mean."""

from __future__ import annotations

import argparse
import math
from typing import Any

from vllm_mlx_core.api import Settings

from .store import MEMORY, Store

MAX_AGE_DAYS = 30.0
MAX_MB = 512.0
FILE = "responses.db"
_DAY_S = 86_400.0
_MB = 1024 * 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("stored responses")
    group.add_argument(
        "--responses-db",
        metavar="FILE",
        type=_path,
        help=f"SQLite database of stored responses, or {MEMORY} (default: {FILE} in the state directory)",
    )
    group.add_argument(
        "--responses-max-age-days",
        metavar="DAYS",
        type=_positive,
        default=MAX_AGE_DAYS,
        help="forget responses that were not used for so long (default: %(default)g)",
    )
    group.add_argument(
        "--responses-max-mb",
        metavar="MB",
        type=_positive,
        default=MAX_MB,
        help="forget the least recently used responses beyond this size (default: %(default)g)",
    )


def open_store(settings: Settings) -> Store:
    """Return the store that the operator asked for. Raises UsageError if it cannot be used."""

    def option(name: str, default: Any) -> Any:
        value = settings.plugin_options.get(name)
        return default if value is None else value

    default = MEMORY if settings.state_dir is None else str(settings.state_dir / FILE)
    return Store(
        str(option("responses_db", default)),
        max_age_s=option("responses_max_age_days", MAX_AGE_DAYS) * _DAY_S,
        max_bytes=int(option("responses_max_mb", MAX_MB) * _MB),
    )


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("a file name is needed")
    return text


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value
