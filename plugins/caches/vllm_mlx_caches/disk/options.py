"""The command line's way to a disk: over whatever policy is chosen."""

from __future__ import annotations

import argparse
import math

from vllm_mlx_core.api import Settings, UsageError

from .folder import DEFAULT_MAX_GB, MAX_GB, open_folder

_SIZE = f"must be a number above 0 and at most {MAX_GB:g}"


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
    max_gb = _max_gb(settings)
    if not _is_size(max_gb):
        raise UsageError(f"--ssd-cache-max-gb {_SIZE}, not {max_gb!r}.")
    open_folder(directory, max_gb)


def covered(cache: str, settings: Settings) -> str | None:
    """Return the policy that keeps on a disk what ``cache`` keeps, if the options ask for it."""
    directory = settings.plugin_options.get("ssd_cache_dir")
    return None if directory is None else f"disk:dir={directory},max_gb={_max_gb(settings):g},over={cache}"


def _max_gb(settings: Settings) -> float:
    given = settings.plugin_options.get("ssd_cache_max_gb")
    return DEFAULT_MAX_GB if given is None else given


def _path(text: str) -> str:
    if not text or "," in text:
        raise argparse.ArgumentTypeError(f"must be a path without a comma, not {text!r}")
    return text


def _gigabytes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _is_size(value):
        raise argparse.ArgumentTypeError(f"{_SIZE}, not {text!r}")
    return value


def _is_size(gigabytes: float) -> bool:
    return 0 < gigabytes <= MAX_GB
