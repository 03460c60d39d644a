"""The scripted model: it finds its next token by looking back, as attention would, and has no weights.

The token ids that it has read are the keys of one ordinary KV cache, so everything that the engine does to a cache
(chunks, padding, merging rows, extracting, trimming, resuming) is done to the script, and a fault there shows in the
answer.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from ._scripted_tokenizer import VOCAB_SIZE, Special

SCRIPTED_LOGIT = 50.0
"""Logit of the scripted token; all others are 0, so it is picked at any temperature that is not absurd."""


class ScriptedModel:
    """The compute half of the scripted family. Engine thread only."""

    @property
    def nbytes(self) -> int:
        """There are no weights."""
        return 0

    @property
    def vocab_size(self) -> int:
        """Width of the logits."""
        return VOCAB_SIZE

    def make_cache(self) -> list[Any]:
        """Return an empty state: a single layer."""
        return [KVCache()]

    def forward(self, tokens: mx.array, layers: list[Any]) -> mx.array:
        """Read ``tokens`` ([rows, length]) and return logits [rows, length, vocab]. Mutates ``layers``."""
        cache = layers[0]
        entry = tokens.astype(mx.float32)[:, None, :, None]
        keys, _ = cache.update_and_fetch(entry, entry)
        history = keys[:, 0, :, 0].astype(mx.int32)
        ends = mx.broadcast_to(mx.array(cache.offset), (len(history),))
        following = scripted_tokens(history, ends, tokens.shape[1])
        return mx.where(mx.arange(VOCAB_SIZE) == following[..., None], SCRIPTED_LOGIT, 0.0)


def scripted_tokens(history: mx.array, ends: mx.array, count: int) -> mx.array:
    """Return what follows each of the ``count`` tokens before ``ends`` ([rows]) in ``history``: [rows, count].

    ``history`` is [rows, length]; what stands behind the end of a row is no part of it. After k tokens of an answer
    comes the k-th token, counted from 0, behind the last ``USER``, until a special token ends the script. Where no
    answer is open, END comes.
    """
    columns = mx.arange(history.shape[1])[None]
    latest_columns = ends[:, None] - count + mx.arange(count)

    def latest(wanted: mx.array) -> mx.array:
        """Return, for each of the last ``count`` tokens, the last wanted column up to there, or -1."""
        return mx.take_along_axis(mx.cummax(mx.where(wanted, columns, -1), axis=1), latest_columns, axis=1)

    script = latest(history == Special.USER) + 1
    answer = latest((history == Special.ASSISTANT) | (history == Special.THINK))
    open_answer = (script > 0) & (answer >= script)
    source = mx.where(open_answer, script + latest_columns - answer, 0)  # never behind the column itself
    specials = mx.cumsum((history < len(Special)).astype(mx.int32), axis=1)
    before_script = mx.maximum(script - 1, 0)
    ended = mx.take_along_axis(specials, source, axis=1) > mx.take_along_axis(specials, before_script, axis=1)
    return mx.where(open_answer & ~ended, mx.take_along_axis(history, source, axis=1), Special.END)
