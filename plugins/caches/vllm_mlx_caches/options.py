"""The command line's short ways to a cache policy, under the names that scripts for the original vllm-mlx use."""

from __future__ import annotations

import argparse

from vllm_mlx_core.api import Settings, UsageError

from .paged import BLOCK_SIZE, MAX_BLOCKS

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
        "--use-paged-cache",
        action="store_true",
        help="keep the prefix cache in blocks of equal size and bound their number as well as memory: --cache paged",
    )
    group.add_argument(
        "--paged-cache-block-size",
        metavar="N",
        type=_count,
        help=f"tokens in a block; needs --use-paged-cache (default: {BLOCK_SIZE})",
    )
    group.add_argument(
        "--max-cache-blocks",
        metavar="N",
        type=_count,
        help=f"number of blocks; needs --use-paged-cache (default: {MAX_BLOCKS})",
    )


def check_options(settings: Settings) -> None:
    """Raise UsageError for options that contradict each other."""
    given = settings.plugin_options
    short = {
        "--disable-prefix-cache": given.get("enable_prefix_cache") is False,
        "--no-memory-aware-cache": bool(given.get("no_memory_aware_cache")),
        "--use-paged-cache": bool(given.get("use_paged_cache")),
    }
    used = [option for option, is_used in short.items() if is_used]
    if settings.engine.cache and used:
        raise UsageError(f"{used[0]} and --cache {settings.engine.cache} choose the prefix cache twice.")
    if len(used) > 1:
        raise UsageError(f"{used[0]} and {used[1]} contradict each other.")
    if given.get("prefix_cache_size") is not None and not short["--no-memory-aware-cache"]:
        raise UsageError("--prefix-cache-size needs --no-memory-aware-cache; else --cache-memory-mb is the bound.")
    for option, name in (
        ("--paged-cache-block-size", "paged_cache_block_size"),
        ("--max-cache-blocks", "max_cache_blocks"),
    ):
        if given.get(name) is not None and not short["--use-paged-cache"]:
            raise UsageError(f"{option} needs --use-paged-cache.")


def chosen(settings: Settings) -> str | None:
    """Return the policy that the options name, ``NAME[:k=v,…]``, or None."""
    given = settings.plugin_options
    if given.get("enable_prefix_cache") is False:
        return "off"
    if given.get("no_memory_aware_cache"):
        return f"lru:max_entries={given.get('prefix_cache_size') or PREFIX_CACHE_SIZE}"
    if given.get("use_paged_cache"):
        block_size = given.get("paged_cache_block_size") or BLOCK_SIZE
        return f"paged:block_size={block_size},max_blocks={given.get('max_cache_blocks') or MAX_BLOCKS}"
    return None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)
