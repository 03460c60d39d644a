"""How likely a prompt's tokens are: computed from the logits of its prefill, which are otherwise never looked at.

A chunk of n tokens has n rows of logits, and the row of each token is about the token after it. Logits are as wide as
the vocabulary, so the scheduler keeps such chunks short, and what is made of them in float32 is made in slices of
positions. Engine thread only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

from vllm_mlx_core.api import Generator

from . import states
from .logprobs import logprobs_of
from .messages import Logprobs
from .scheduler import Chunk
from .sequence import Sequence

MAX_LOGITS = 1 << 25
"""Most logits of prompts that one step asks of the model: 128 MB of float32."""
MAX_SLICE = 1 << 23
"""Most of them that are made float32, compared and sorted at once."""


def positions_per_step(vocab_size: int) -> int:
    """Return how many tokens of scored prompts one step may read."""
    return max(1, MAX_LOGITS // vocab_size)


@dataclass(frozen=True, slots=True)
class Scores:
    """What was made of one chunk, lazy: the log-probabilities of the tokens that follow each of its own."""

    sequence: Sequence
    restarts: int
    parts: list[tuple[mx.array, mx.array | None, mx.array | None]]

    @property
    def are_stale(self) -> bool:
        """Whether the sequence has ended, or has begun again, since they were computed."""
        return self.sequence.is_finished or self.sequence.restarts != self.restarts

    def read(self) -> list[Logprobs]:
        """Wait for them and return one entry for each token. Raises what computing them raises."""
        mx.eval(self.parts)
        wanted = self.sequence.submit.sampling.prompt_logprobs or 0
        entries = []
        for chosen, ids, values in self.parts:
            own: list[float] = chosen.tolist()
            if ids is None or values is None:
                entries += [Logprobs(each, [], []) for each in own]
                continue
            rows = zip(own, ids.tolist(), values.tolist(), strict=True)
            entries += [Logprobs(each, row_ids[:wanted], row_values[:wanted]) for each, row_ids, row_values in rows]
        return entries


def read_scored(generator: Generator, chunk: Chunk) -> Scores:
    """Read one chunk into the sequence's own state and return its scores. Enqueues; does not wait.

    Mutates the sequence. Raises ValueError if the model returns logits of a wrong shape.
    """
    sequence, length = chunk
    start = sequence.num_computed
    tokens = sequence.submit.prompt[start : start + length + 1]
    if sequence.layers is None:
        sequence.layers = generator.make_cache()
    logits = generator.forward(mx.array([tokens[:length]], dtype=mx.int32), sequence.layers)
    expected = (1, length, generator.vocab_size)
    if logits.shape != expected:
        raise ValueError(f"The model returned logits of shape {logits.shape}, not {expected}.")
    following = mx.array(tokens[1:], dtype=mx.int32)
    most = sequence.submit.sampling.prompt_logprobs or 0
    step = max(1, MAX_SLICE // generator.vocab_size)
    parts = [
        logprobs_of(logits[0, first : first + step], following[first : first + step], most)
        for first in range(0, length, step)
    ]
    mx.async_eval(states.arrays(sequence.layers), parts)
    sequence.num_computed += length
    return Scores(sequence, sequence.restarts, parts)


def are_numbers(entries: list[Logprobs]) -> bool:
    """Return whether no entry is NaN, which it is if any of the logits behind it are."""
    return not any(math.isnan(entry.chosen) for entry in entries)
