"""What fits a checkpoint: the operator's flags first, then the family's word, then the plugins'."""

from __future__ import annotations

from vllm_mlx_core.api import (
    CachePolicy,
    CacheSpec,
    Checkpoint,
    EngineSettings,
    ModelFamily,
    ParserChoice,
    PluginError,
    ReasoningParser,
    Settings,
    ToolParser,
    UsageError,
    VllmMlxError,
)
from vllm_mlx_core.engine import device
from vllm_mlx_core.host import Host

from .cache_choice import CacheChoice

NO_PARSER = "none"

MIN_REUSED_TOKENS = 16
"""Shorter prefixes are read again: that is quicker than copying their state."""


def check_names(host: Host, settings: Settings) -> None:
    """Raise PluginError or UsageError now if the operator named a parser or cache policy that cannot be had.

    Imports the named classes, so that a mistake costs no loading of a model.
    """
    parser_classes(ParserChoice(_named(settings.tool_parser), _named(settings.reasoning_parser)), host)
    if settings.engine.cache:
        policy = make_cache(settings.engine.cache, host, settings.engine)
        policy.close()
        check_warm_prompts(settings, policy, settings.engine.cache)


def check_warm_prompts(settings: Settings, policy: CachePolicy, choice: str) -> None:
    """Raise UsageError if there are prompts to warm a cache with, and ``choice`` keeps nothing."""
    if settings.warm_prompts and policy.keeps_nothing:
        raise UsageError(f"--warm-prompts needs a prefix cache, and {choice!r} keeps nothing.")


def choose_parsers(
    checkpoint: Checkpoint, family_name: str, family: type[ModelFamily], host: Host, settings: Settings
) -> ParserChoice:
    """Return the parsers to use and why."""
    if family.parsers is not None:
        found = family.parsers._replace(reason=family.parsers.reason or f"model family {family_name}")
    else:
        found = host.choose_parsers(checkpoint, family_name)
    reasons = [found.reason] if found.reason else []
    tool, reasoning = found.tool, found.reasoning
    if settings.tool_parser is not None:
        tool = _named(settings.tool_parser)
        reasons.append("--tool-call-parser")
    if settings.reasoning_parser is not None:
        reasoning = _named(settings.reasoning_parser)
        reasons.append("--reasoning-parser")
    return ParserChoice(tool, reasoning, ", ".join(reasons))


def parser_classes(choice: ParserChoice, host: Host) -> tuple[type[ToolParser] | None, type[ReasoningParser] | None]:
    """Import the chosen parsers. Raises PluginError."""
    return (
        host.tool_parsers.get(choice.tool) if choice.tool else None,
        host.reasoning_parsers.get(choice.reasoning) if choice.reasoning else None,
    )


def make_cache(choice: str, host: Host, settings: EngineSettings) -> CachePolicy:
    """Make the cache policy that ``NAME[:k=v,…]`` names. Raises PluginError or UsageError."""
    parsed = CacheChoice.parse(choice)
    policy = host.cache_policies.get(parsed.name)
    if parsed.over is not None and not policy.is_cover:
        raise UsageError(f"--cache {choice}: the cache policy {parsed.name!r} does not work over another one.")
    over = None if parsed.over is None else make_cache(parsed.over, host, settings)
    try:
        return policy(
            CacheSpec(max_bytes=cache_budget(settings), options=parsed.options, over=over, min_tokens=MIN_REUSED_TOKENS)
        )
    except VllmMlxError:
        raise
    except Exception as error:
        raise PluginError(f"The cache policy {parsed.name!r} failed: {type(error).__name__}: {error}") from error


def cache_budget(settings: EngineSettings) -> int:
    """Return how many bytes the prefix cache may have."""
    if settings.cache_memory_bytes is not None:
        return settings.cache_memory_bytes
    return int(device.machine_memory() * settings.cache_memory_share)


def _named(choice: str | None) -> str | None:
    return None if choice == NO_PARSER else choice
