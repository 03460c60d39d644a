"""Repetition, presence and frequency penalties, for the rows of a batch that have any."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from .messages import SamplingSpec


def is_penalised(spec: SamplingSpec) -> bool:
    """Return whether ``spec`` asks for any penalty."""
    return bool(spec.presence_penalty or spec.frequency_penalty or spec.repetition_penalty != 1)


class Penalties:
    """Which tokens the penalised rows have seen, kept on the device. Engine thread only; everything is lazy.

    The counts of one step are evaluated with the next one, which needs them.

    Only penalised rows take memory: one float32 count for each token of the vocabulary, and as many bytes again for
    one row or more with a repetition penalty.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._rows: list[int] = []
        self._specs: list[SamplingSpec] = []
        self._counts: mx.array | None = None  # float32 [penalised, vocab], of the output
        self._prompted: mx.array | None = None  # float32 [penalised, vocab], 1 where the prompt holds the token
        self._arrays: tuple[mx.array, mx.array, mx.array, mx.array] | None = None

    def __bool__(self) -> bool:
        return bool(self._rows)

    def append(self, row: int, spec: SamplingSpec, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Add row ``row`` of the batch, which must be above all rows here. Mutates."""
        counts = mx.array(self._histogram(output))
        before = len(self._rows)
        self._counts = counts if self._counts is None else mx.concatenate([self._counts, counts])
        if spec.repetition_penalty != 1 and self._prompted is None and before:
            self._prompted = mx.zeros((before, self._vocab_size))
        if spec.repetition_penalty != 1 or self._prompted is not None:
            repeats = spec.repetition_penalty != 1
            seen = mx.array(np.minimum(self._histogram(prompt if repeats else ()), 1))
            self._prompted = seen if self._prompted is None else mx.concatenate([self._prompted, seen])
        self._rows.append(row)
        self._specs.append(spec)
        self._arrays = None

    def filter(self, keep: Sequence[int]) -> None:
        """Keep these rows of the batch, in this order. Mutates."""
        slots = {row: slot for slot, row in enumerate(self._rows)}
        kept = [(new, slots[row]) for new, row in enumerate(keep) if row in slots]
        order = [slot for _, slot in kept]
        self._rows = [new for new, _ in kept]
        self._specs = [self._specs[slot] for slot in order]
        self._arrays = None
        if not kept:
            self._counts = self._prompted = None
            return
        index = mx.array(order)
        if self._counts is not None:
            self._counts = self._counts[index]
        if self._prompted is not None:
            repeats = any(spec.repetition_penalty != 1 for spec in self._specs)
            self._prompted = self._prompted[index] if repeats else None

    def apply(self, logits: mx.array) -> mx.array:
        """Return float32 ``logits`` [rows, vocab] with the penalties of the rows that have some. Does not mutate."""
        if self._counts is None:
            return logits
        rows, repetition, frequency, presence = self._parameters()
        everyone = len(self._rows) == logits.shape[0]
        x = logits if everyone else logits[rows]
        present = (self._counts > 0).astype(mx.float32)
        if self._prompted is not None:
            factor = 1 + mx.maximum(present, self._prompted) * (repetition - 1)
            x = mx.maximum(x, 0) / factor + mx.minimum(x, 0) * factor
        x = x - frequency * self._counts - presence * present
        if everyone:
            return x
        result = mx.array(logits)
        result[rows] = x
        return result

    def update(self, tokens: mx.array) -> None:
        """Count the tokens [rows] that were just sampled, which need not be evaluated yet. Mutates."""
        if self._counts is None:
            return
        rows = self._parameters()[0]
        chosen = tokens[rows]
        self._counts = self._counts.at[mx.arange(len(self._rows)), chosen].add(1)

    def _parameters(self) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        if self._arrays is None:
            columns = ("repetition_penalty", "frequency_penalty", "presence_penalty")
            vectors = [mx.array([[float(getattr(spec, name))] for spec in self._specs]) for name in columns]
            self._arrays = (mx.array(self._rows), vectors[0], vectors[1], vectors[2])
        return self._arrays

    def _histogram(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        ids = np.asarray(tokens, dtype=np.int64)
        ids = ids[(ids >= 0) & (ids < self._vocab_size)]  # placeholders of media lie outside the vocabulary
        return np.bincount(ids, minlength=self._vocab_size).astype(np.float32)[None]
