"""Reading prompts: runs the groups that the scheduler planned. Engine thread only."""

from __future__ import annotations

import mlx.core as mx

from vllm_mlx_core.api import Generator

from . import states
from .scheduler import Chunk


def read_chunk(generator: Generator, chunk: Chunk) -> states.Layers:
    """Read one chunk into the sequence's own state, and return that. Enqueues; does not wait. Mutates the sequence.

    The logits are never computed: MLX is lazy and only the state is evaluated.
    """
    sequence, length = chunk
    if sequence.layers is None:
        sequence.layers = generator.make_cache()
    start = sequence.num_computed
    tokens = sequence.tokens[start : start + length]
    with states.staggered(sequence.layers, length):
        generator.forward(mx.array([tokens], dtype=mx.int32), sequence.layers)
    mx.async_eval(states.arrays(sequence.layers))
    sequence.num_computed += length
    return sequence.layers


def read_together(generator: Generator, group: list[Chunk], *, ragged: bool) -> states.Layers:
    """Read the whole rest of several prompts in one forward and return their batch state. Enqueues; does not wait.

    Mutates the sequences: their own state moves into the batch.
    """
    batch = states.merge([c.sequence.layers or generator.make_cache() for c in group])
    lengths = [c.length for c in group]
    longest = max(lengths)
    rows = []
    for sequence, length in group:
        start = sequence.num_computed
        rows.append(sequence.tokens[start : start + length] + [0] * (longest - length))
    if ragged:
        states.begin_ragged(batch, lengths)
    generator.forward(mx.array(rows, dtype=mx.int32), batch)
    if ragged:
        states.end_ragged(batch)
    mx.async_eval(states.arrays(batch))
    for sequence, length in group:
        sequence.num_computed += length
        sequence.layers = None
    return batch
