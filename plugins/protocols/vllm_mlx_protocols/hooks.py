"""What the front-ends of this package ask of the operator."""

from __future__ import annotations

import argparse

from vllm_mlx_core.api import Settings, hookimpl

from .batches import options as batches
from .operations import options as operations
from .responses import options as responses


@hookimpl
def vllm_mlx_add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all front-ends."""
    responses.add_options(parser)
    batches.add_options(parser)
    operations.add_options(parser)


@hookimpl
def vllm_mlx_configure(settings: Settings) -> None:
    """Find out before a model is loaded what cannot be had. Raises UsageError or MissingExtra."""
    responses.check_options(settings)
    batches.check_options(settings)
    operations.check_options(settings)
