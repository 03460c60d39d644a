"""The compute half: a table of logits. Imported on the engine thread only, because it imports MLX."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from .processor import END, VOCAB_SIZE

PSEUDO_COUNT = 1e-3
"""What every pair is counted as at least, so that no byte is impossible."""


class BigramModel:
    """Logits by the last token. The end token follows the end of a line, and a letter of the corpus follows it."""

    vocab_size = VOCAB_SIZE

    def __init__(self, corpus: bytes) -> None:
        lines = [[END, *line, END] for line in corpus.splitlines() if line]
        counts = Counter(pair for line in lines for pair in pairwise(line))
        table = [[counts[row, column] + PSEUDO_COUNT for column in range(VOCAB_SIZE)] for row in range(VOCAB_SIZE)]
        self._logits = mx.log(mx.array(table))
        self.nbytes = self._logits.nbytes

    def make_cache(self) -> list[Any]:
        """Return an empty state: one layer, which does nothing but count the tokens."""
        return [KVCache()]

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        """Look up the logits behind each token. Mutates ``layers``."""
        nothing = mx.zeros((tokens.shape[0], 1, tokens.shape[1], 1))
        layers[0].update_and_fetch(nothing, nothing)
        return self._logits[tokens]
