"""The command line's way to a disk: over whatever policy is chosen."""

from __future__ import annotations

import argparse
import math

from vllm_mlx_core.api import Settings, UsageError

from .folder import DEFAULT_MAX_GB, open_folder


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("prefix cache on a disk", "Beside memory, whatever policy bounds that.")
    group.add_argument(
        "--ssd-cache-dir",
        metavar="DIR",
        type=_path,
        help="keep states of past prompts in this folder as well, so that they outlive the server",
    )
    group.add_argument(
        "--ssd-cache-max-gb",
        metavar="GB",
        type=_gigabytes,
        help=f"most that the folder may hold, in GB; needs --ssd-cache-dir (default: {DEFAULT_MAX_GB:g})",
    )


def check_options(settings: Settings, policy: str | None) -> None:
    """Raise UsageError if the folder cannot be used, or ``policy``, if one is named, cannot lie under it."""
    given = settings.plugin_options
    directory = given.get("ssd_cache_dir")
    if directory is None:
        if given.get("ssd_cache_max_gb") is not None:
            raise UsageError("--ssd-cache-max-gb needs --ssd-cache-dir.")
        return
    name = (policy or "").partition(":")[0]
    if name in ("off", "disk"):
        raise UsageError(f"--ssd-cache-dir does not go with the cache policy {name!r}.")
    open_folder(directory, given.get("ssd_cache_max_gb") or DEFAULT_MAX_GB)


def covered(cache: str, settings: Settings) -> str | None:
    """Return the policy that keeps on a disk what ``cache`` keeps, if the options ask for it."""
    given = settings.plugin_options
    directory, max_gb = given.get("ssd_cache_dir"), given.get("ssd_cache_max_gb") or DEFAULT_MAX_GB
    return None if directory is None else f"disk:dir={directory},max_gb={max_gb:g},over={cache}"


def _path(text: str) -> str:
    if not text or "," in text:
        raise argparse.ArgumentTypeError(f"must be a path without a comma, not {text!r}")
    return text


def _gigabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value
