"""A hook plugin (by module name) that counts the prompt tokens that engines compute."""

from __future__ import annotations

from vllm_mlx_core.api import StepStats, hookimpl

counted: list[int] = []
"""One number per step."""


@hookimpl
def vllm_mlx_step_finished(stats: StepStats) -> None:
    counted.append(stats.prefilled_tokens)
