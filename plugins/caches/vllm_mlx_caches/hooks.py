"""The built-in choice of a cache policy."""

from __future__ import annotations

import argparse

from vllm_mlx_core.api import Settings, hookimpl

from . import options
from .disk import options as disk_options


@hookimpl
def vllm_mlx_add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the short ways to a policy, and the disk."""
    options.add_options(parser)
    disk_options.add_options(parser)


@hookimpl
def vllm_mlx_configure(settings: Settings) -> None:
    """Refuse options that contradict each other."""
    options.check_options(settings)
    disk_options.check_options(settings, settings.engine.cache or options.chosen(settings))


@hookimpl(trylast=True)
def vllm_mlx_choose_cache(settings: Settings) -> str:
    """Choose what the options name, else the policy that suits every kind of layer state."""
    return options.chosen(settings) or "radix"


@hookimpl(trylast=True)
def vllm_mlx_cover_cache(cache: str, settings: Settings) -> str | None:
    """Keep states on a disk as well, if the options ask for it."""
    return disk_options.covered(cache, settings)
