"""The command line's short ways to a cache policy, under the names that scripts for the original vllm-mlx use."""

from __future__ import annotations

import argparse
import math

from vllm_mlx_core.api import Settings, UsageError

from .disk.folder import DEFAULT_MAX_GB, open_folder

PREFIX_CACHE_SIZE = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``. Mutates."""
    group = parser.add_argument_group("cache policies", "Short for a --cache NAME, and not to be combined with one.")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--enable-prefix-cache",
        action="store_true",
        default=True,
        help="accepted for scripts written for other servers: it is on unless it is switched off",
    )
    either.add_argument(
        "--disable-prefix-cache",
        dest="enable_prefix_cache",
        action="store_false",
        help="keep no states of past prompts: --cache off",
    )
    group.add_argument(
        "--no-memory-aware-cache",
        action="store_true",
        help="bound the prefix cache by a number of whole states as well as by memory: --cache lru",
    )
    group.add_argument(
        "--prefix-cache-size",
        metavar="N",
        type=_count,
        help=f"that number; needs --no-memory-aware-cache (default: {PREFIX_CACHE_SIZE})",
    )
    group.add_argument(
        "--ssd-cache-dir",
        metavar="DIR",
        type=_folder,
        help="keep states of past prompts in this folder as well, whatever the cache policy: the next start finds them",
    )
    group.add_argument(
        "--ssd-cache-max-gb",
        metavar="GB",
        type=_gigabytes,
        help=f"most that folder may hold, in GB; needs --ssd-cache-dir (default: {DEFAULT_MAX_GB:g})",
    )


def check_options(settings: Settings) -> None:
    """Raise UsageError for options that contradict each other."""
    given = settings.plugin_options
    short = {
        "--disable-prefix-cache": given.get("enable_prefix_cache") is False,
        "--no-memory-aware-cache": bool(given.get("no_memory_aware_cache")),
    }
    used = [option for option, is_used in short.items() if is_used]
    if settings.engine.cache and used:
        raise UsageError(f"{used[0]} and --cache {settings.engine.cache} choose the prefix cache twice.")
    if len(used) > 1:
        raise UsageError(f"{used[0]} and {used[1]} contradict each other.")
    if given.get("prefix_cache_size") is not None and not short["--no-memory-aware-cache"]:
        raise UsageError("--prefix-cache-size needs --no-memory-aware-cache; else --cache-memory-mb is the bound.")
    _check_disk(settings)


def chosen(settings: Settings) -> str | None:
    """Return the policy that the options name, ``NAME[:k=v,…]``, or None."""
    given = settings.plugin_options
    if given.get("enable_prefix_cache") is False:
        return "off"
    if given.get("no_memory_aware_cache"):
        return f"lru:max_entries={given.get('prefix_cache_size') or PREFIX_CACHE_SIZE}"
    return None


def covered(cache: str, settings: Settings) -> str | None:
    """Return the policy that keeps on a disk what ``cache`` keeps, if the options ask for it."""
    given = settings.plugin_options
    directory = given.get("ssd_cache_dir")
    if directory is None:
        return None
    return f"disk:dir={directory},max_gb={given.get('ssd_cache_max_gb') or DEFAULT_MAX_GB:g},over={cache}"


def _check_disk(settings: Settings) -> None:
    given = settings.plugin_options
    directory = given.get("ssd_cache_dir")
    if directory is None:
        if given.get("ssd_cache_max_gb") is not None:
            raise UsageError("--ssd-cache-max-gb needs --ssd-cache-dir.")
        return
    name = (settings.engine.cache or chosen(settings) or "").partition(":")[0]
    if name in ("off", "disk"):
        raise UsageError(f"--ssd-cache-dir and --cache {name} contradict each other.")
    open_folder(directory, given.get("ssd_cache_max_gb") or DEFAULT_MAX_GB)


def _folder(text: str) -> str:
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


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)
