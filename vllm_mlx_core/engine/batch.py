"""A batch of decoding sequences: their layer states, the tokens they read next, and how they are sampled.

Row i of everything belongs to ``sequences[i]``. ``launch`` enqueues a step without waiting for the one before it: the
tokens it reads may not have been computed yet. A batch of one keeps the sequence's own (solo) state, which needs no
padding masks and cannot fail to merge. Engine thread only.
"""

from __future__ import annotations

import mlx.core as mx

from vllm_mlx_core.api import Generator

from . import states
from .sampler import BatchSampler, Sampled
from .sequence import Sequence
from .step_cost import step_bytes

GROWTH_STEPS = 8
"""Over how many steps what it costs to copy a batch's rows into longer ones is counted."""


class Batch:
    """Decoding sequences that share one forward pass per step. Starts empty; drop it when it is empty again.

    Unless ``can_extract``, rows are never taken out of a batch state: one that shrinks to a single row stays as it is.
    """

    def __init__(self, generator: Generator, *, can_extract: bool = True) -> None:
        self._generator = generator
        self._can_extract = can_extract
        self._is_solo = False
        self._sampler = BatchSampler(generator.vocab_size)
        self._layers: states.Layers = []
        self._token_bytes = 0
        self._tokens: mx.array | None = None
        self.sequences: list[Sequence] = []
        self.is_new = True
        """Whether it has neither run nor waited for others."""

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def step_bytes(self) -> int:
        """What its next step costs (``step_cost``); 0 if it is empty."""
        if not self.sequences:
            return 0
        return step_bytes(self._generator.nbytes, len(self), self._longest, self._token_bytes)

    def added_bytes(self, rows: int, length: int, token_bytes: int) -> int:
        """Return how much more its step costs if ``rows`` of ``length`` tokens join it. Does not mutate.

        ``token_bytes`` are those that a row keeps for each token. If all rows must grow for it, which holds up their
        next token, that counts as a part of each step.
        """
        longest = max(self._longest, length)
        added = step_bytes(self._generator.nbytes, len(self) + rows, longest, token_bytes) - self.step_bytes
        grows = self.sequences and length > self._longest
        return added + (len(self) * length * token_bytes // GROWTH_STEPS if grows else 0)

    def row_bytes(self, length: int) -> int:
        """Return what room for one row more takes, in bytes, when a row of ``length`` tokens has joined."""
        return max(self._longest, length) * self._token_bytes

    @property
    def _longest(self) -> int:
        return max((sequence.num_computed for sequence in self.sequences), default=0)

    def join(self, sequences: list[Sequence], layers: states.Layers, *, soon: int = 0) -> None:
        """Add sequences whose prompt is read up to the last token. Mutates.

        ``layers`` is the solo state of one sequence or the batch state of several; it must not be used again. ``soon``
        is how many more will join shortly, and find room then.
        """
        if not sequences:
            return
        self._token_bytes = max(self._token_bytes, states.token_bytes(layers))
        if not self.sequences:
            self._layers = layers
            self._is_solo = len(sequences) == 1
        else:
            if self._is_solo:
                self._layers = states.merge([self._layers])
                self._is_solo = False
            joining = layers if len(sequences) > 1 else states.merge([layers])
            states.reserve(self._layers, len(self.sequences) + len(sequences) + soon)
            states.extend(self._layers, joining, rows=len(self.sequences), more_rows=len(sequences))
        last = mx.array([s.last_token for s in sequences], dtype=mx.int32)
        self._tokens = last if self._tokens is None else mx.concatenate([self._tokens, last])
        for s in sequences:
            submit = s.submit
            self._sampler.append(submit.sampling, submit.prompt, s.output, submit.stop_token_ids, submit.min_tokens)
        self.sequences += sequences

    def launch(self) -> Sampled:
        """Enqueue one step for every row and return what it will sample. Mutates; does not wait.

        Raises whatever the model does, and ValueError if it returns logits of a wrong shape.
        """
        assert self._tokens is not None
        self.is_new = False
        logits = self._generator.forward(self._tokens[:, None], self._layers)
        expected = (len(self.sequences), 1, self._generator.vocab_size)
        if logits.shape != expected:
            raise ValueError(f"The model returned logits of shape {logits.shape}, not {expected}.")
        logits = logits[:, -1]
        sampled = self._sampler.sample(logits)
        self._tokens = sampled.tokens
        mx.async_eval(*sampled.arrays())
        for sequence in self.sequences:
            sequence.num_computed += 1
            sequence.in_flight += 1
        return sampled

    def extract(self, sequence: Sequence) -> states.Layers:
        """Return a sequence's state as a solo state. Does not mutate."""
        if self._is_solo:
            return self._layers
        return states.extract(self._layers, self.sequences.index(sequence))

    def remove(self, gone: set[int]) -> None:
        """Drop the sequences with these ids. Mutates: others take their places, so that few states are moved."""
        rows = states.places([s.id not in gone for s in self.sequences])
        if len(rows) == len(self.sequences):
            return
        if not rows:
            self._layers, self._tokens = [], None
        elif len(rows) == 1 and self._can_extract:
            unread = not self.sequences[rows[0]].num_computed  # nothing can be taken out of a state that is empty
            self._layers = self._generator.make_cache() if unread else states.extract(self._layers, rows[0])
            self._is_solo = True
        else:
            states.keep(self._layers, rows)
        if rows:
            assert self._tokens is not None
            self._tokens = self._tokens[mx.array(rows)]
        self._sampler.filter(rows)
        self.sequences = [self.sequences[i] for i in rows]
