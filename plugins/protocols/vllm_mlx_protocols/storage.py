"""Where a front-end keeps what outlives the process, and how much: command-line options and what they mean."""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from vllm_mlx_core.api import Settings, UsageError

from .database import MEMORY

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_AGE_DAYS = 30.0
_DAY_S = 86_400.0
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Storage:
    """The file ``NAME.db`` and the options ``--NAME-db``, ``--NAME-max-age-days`` and ``--NAME-max-mb``.

    ``what`` is what is kept, ``max_mb`` the default of its size; ``age_help`` and ``size_help`` say what the bounds do.
    """

    name: str
    what: str
    max_mb: float
    age_help: str
    size_help: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options to ``parser``. Mutates."""
        group = parser.add_argument_group(self.what)
        group.add_argument(
            f"--{self.name}-db",
            metavar="FILE",
            type=_file_name,
            help=f"SQLite database of {self.what}, or {MEMORY} (default: {self.name}.db in the state directory)",
        )
        group.add_argument(
            f"--{self.name}-max-age-days",
            metavar="DAYS",
            type=_positive,
            default=MAX_AGE_DAYS,
            help=f"{self.age_help} (default: %(default)g)",
        )
        group.add_argument(
            f"--{self.name}-max-mb",
            metavar="MB",
            type=_positive,
            default=self.max_mb,
            help=f"{self.size_help} (default: %(default)g)",
        )

    def max_age_s(self, settings: Settings) -> float:
        """Return how long things are kept, in seconds."""
        return float(self._option(settings, "max_age_days", MAX_AGE_DAYS)) * _DAY_S

    def max_bytes(self, settings: Settings) -> int:
        """Return how much is kept."""
        return int(self._option(settings, "max_mb", self.max_mb) * _MB)

    def is_named(self, settings: Settings) -> bool:
        """Return whether the operator named a file."""
        return self._option(settings, "db", None) is not None

    def open(self, settings: Settings, open_at: Callable[[str], T]) -> T:
        """Open the file that the operator named, else the one in the state directory, else memory.

        Raises UsageError if what was named cannot be used. Nobody asked for the file in the state directory, so that is
        no reason not to start: a warning says that things are kept in memory only.
        """
        if self.is_named(settings):
            return open_at(str(self._option(settings, "db", None)))
        if settings.state_dir is None:
            return open_at(MEMORY)
        try:
            return open_at(str(settings.state_dir / f"{self.name}.db"))
        except UsageError as error:
            log.warning("The %s are kept in memory only, until the server stops. %s", self.what, error)
            return open_at(MEMORY)

    def _option(self, settings: Settings, name: str, default: Any) -> Any:
        return settings.plugin_options.get(f"{self.name}_{name}", default)


def _file_name(text: str) -> str:
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
