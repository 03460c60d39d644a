"""The batches of one engine, and which of them rows belong in. Engine thread only."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_mlx_core.api import Generator

from . import states
from .batch import Batch
from .selftest import ServingMode
from .sequence import Sequence


class Batches:
    """Batches that decode side by side: one, as long as that costs a step least.

    A step costs what it reads. One more batch reads the weights once more; rows of very different lengths in one batch
    read padding, and making rows longer copies them. Sequences that must decode alone have a batch each.
    """

    def __init__(self, generator: Generator, mode: ServingMode) -> None:
        self._generator = generator
        self._mode = mode
        self._batches: list[Batch] = []

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches (a copy: removing while iterating is fine)."""
        return iter(list(self._batches))

    def __len__(self) -> int:
        return len(self._batches)

    def choose(self, sequences: list[Sequence], layers: states.Layers) -> Batch:
        """Return the batch whose steps grow least if rows with these states join it, perhaps a new one. Mutates."""
        new = Batch(self._generator, can_extract=self._mode.resumable)
        candidates = [new]
        if self._mode.batched and not sequences[0].isolated:
            candidates += [b for b in self._batches if b.sequences and not b.sequences[0].isolated]
        length = max(s.num_computed for s in sequences)
        token_bytes = states.token_bytes(layers)
        batch = min(reversed(candidates), key=lambda b: b.added_bytes(len(sequences), length, token_bytes))
        if batch is new:
            self._batches.append(new)
        return batch

    def of(self, sequence: Sequence) -> Batch | None:
        """Return the batch that a sequence is in, if it is in one."""
        return next((batch for batch in self._batches if sequence in batch.sequences), None)

    def extract(self, sequence: Sequence) -> states.Layers | None:
        """Return the solo state of a sequence that is in a batch. Does not mutate it."""
        batch = self.of(sequence)
        return None if batch is None else batch.extract(sequence)

    def discard(self, batch: Batch) -> None:
        """Forget a batch, if it is known. Mutates."""
        if batch in self._batches:
            self._batches.remove(batch)

    def clear(self) -> None:
        """Forget all of them. Mutates."""
        self._batches.clear()
