"""Prompts that a model reads without an engine."""

from __future__ import annotations

import random

import mlx.core as mx

from vllm_mlx_core.api import Generator
from vllm_mlx_core.engine import states


def random_prompt(rng: random.Random, length: int) -> list[int]:
    """Return ordinary token ids of the tiny models."""
    return [rng.randrange(3, 200) for _ in range(length)]


def state_after(generator: Generator, tokens: list[int]) -> states.Layers:
    """Return the solo state of a sequence that has read ``tokens``."""
    layers = generator.make_cache()
    generator.forward(mx.array([tokens], dtype=mx.int32), layers)
    return layers
