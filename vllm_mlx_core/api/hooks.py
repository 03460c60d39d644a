"""Hook specifications: where several plugins may have a say.

A plugin is a module or an object with functions marked ``@hookimpl``; it is offered in the entry-point group
``vllm_mlx`` or by ``--plugin``. An implementation may leave out arguments it does not need. Hooks are synchronous, and
no hook runs per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import pluggy

from .messages import GenerateRequest, RequestSummary, StepStats
from .models import Checkpoint, LoadOptions, ParserChoice

if TYPE_CHECKING:
    import argparse

    from fastapi import FastAPI

    from .protocols import EngineClient
    from .settings import Settings

PROJECT = "vllm_mlx"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as the implementation of the hook whose name it has."""

Kind: TypeAlias = Literal["tool_parsers", "reasoning_parsers", "model_families", "cache_policies", "protocols"]
"""The registries; each is the entry-point group ``vllm_mlx.KIND``."""


class Registrar(Protocol):
    """What ``vllm_mlx_register`` is given."""

    def add(self, kind: Kind, name: str, target: str | type) -> None:
        """Offer a class, or ``"module:Class"`` to import when it is chosen. Raises PluginError for a bad kind."""
        ...


# -- setting up: an exception stops the start ---------------------------------------------------------------------


@hookspec
def vllm_mlx_add_options(parser: argparse.ArgumentParser) -> None:
    """Add options to ``vllm-mlx serve``. Called once, before the command line is parsed."""


@hookspec
def vllm_mlx_register(registrar: Registrar) -> None:
    """Offer named extensions without an entry point. Called once, after all plugins are loaded."""


@hookspec
def vllm_mlx_configure(settings: Settings) -> None:
    """Look at the settings before a model is loaded. May raise UsageError."""


# -- deciding: the first answer wins, built-ins are asked last. A name that several packages offer means, in an answer,
# that of the package which gives it ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def vllm_mlx_resolve_model(reference: str | None, options: LoadOptions) -> Checkpoint | None:
    """Turn what the operator called a model into a checkpoint on this machine; None passes.

    ``reference`` is None when no model was named. May download and takes as long as it needs; reports to
    ``options.progress``. Raises ModelError.
    """


@hookspec(firstresult=True)
def vllm_mlx_detect_family(checkpoint: Checkpoint, families: Sequence[str]) -> str | None:
    """Name the model family that loads a checkpoint, one of ``families``; None passes."""


@hookspec(firstresult=True)
def vllm_mlx_choose_parsers(checkpoint: Checkpoint, family: str) -> ParserChoice | None:
    """Choose tool and reasoning parser for a checkpoint; None passes. Operator flags override the answer."""


@hookspec(firstresult=True)
def vllm_mlx_choose_cache(checkpoint: Checkpoint, family: str, settings: Settings) -> str | None:
    """Choose a cache policy, ``NAME[:k=v,…]``; None passes. ``--cache`` overrides the answer."""


@hookspec(firstresult=True)
def vllm_mlx_cover_cache(cache: str, settings: Settings) -> str | None:
    """Put a policy over the one that was chosen, ``NAME:…,over=`` and ``cache``, whoever chose it; None passes."""


# -- serving --------------------------------------------------------------------------------------------------------


@hookspec
def vllm_mlx_mount(app: FastAPI, engine: EngineClient) -> None:
    """Add routes or middleware. Called once, after the front-ends are mounted and before the first request."""


@hookspec
def vllm_mlx_request_received(request: GenerateRequest) -> None:
    """Adjust a request before it is rendered, or refuse it by raising a RequestError. Event-loop thread."""


# -- observing: a plugin that raises is reported once and muted ---------------------------------------------------


@hookspec
def vllm_mlx_request_finished(summary: RequestSummary) -> None:
    """Observe a request that finished, failed or was cancelled. Event-loop thread."""


@hookspec
def vllm_mlx_step_finished(stats: StepStats) -> None:
    """Observe an engine step. Event-loop thread, once per step: return quickly."""


@hookspec
def vllm_mlx_shutdown() -> None:
    """Release what the plugin holds; the server stops."""
