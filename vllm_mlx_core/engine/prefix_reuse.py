"""What the engine takes from the prefix cache and offers it. Engine thread only."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from vllm_mlx_core.api import CachePolicy, CacheStats, KVQuantization, Lease

from . import states
from .batch import Batch
from .prompt_state import PromptState
from .sequence import Sequence

T = TypeVar("T")
log = logging.getLogger(__name__)

MIN_REUSED_TOKENS = 16
"""Shorter prefixes are read again: that is quicker than copying their state."""


class CacheReport(NamedTuple):
    """What the cache holds, and what clearing it has freed; ``stats`` and ``max_bytes`` are None if there is none."""

    stats: CacheStats | None
    max_bytes: int | None
    freed_bytes: int


class PrefixReuse:
    """A policy behind a guard: when it raises, or a state cannot be copied, that is the end of reuse and of no more."""

    def __init__(self, cache: CachePolicy | None, quantization: KVQuantization | None = None) -> None:
        self._cache = cache
        self._quantization = quantization

    def find(self, sequence: Sequence) -> None:
        """Give a sequence that was just admitted what is known of its beginning. Mutates it."""
        cache = self._cache
        if cache is None or sequence.isolated or sequence.is_scored:
            return
        tokens = sequence.tokens
        lease = self._guarded(lambda: cache.match(tokens, salt=sequence.submit.salt))
        if lease is None:
            self._explain_miss(sequence)
            return
        sequence.lease = lease
        state = self._guarded(lambda: _usable(lease, len(tokens)))
        if state is None or state.num_tokens < MIN_REUSED_TOKENS:
            sequence.release()
            return
        layers = self._guarded(state.layers)
        if layers is None:
            sequence.release()
            return
        sequence.layers = layers
        sequence.num_computed = state.num_tokens
        if not sequence.output:
            sequence.cached_tokens = state.num_tokens

    def keep_prompts(self, sequences: list[Sequence], layers: states.Layers) -> None:
        """Keep the state at the end of each prompt where a later one could not be cut back to it."""
        if self._cache is not None:
            self._guarded(lambda: self._keep_prompts(sequences, layers))

    def state_of(self, sequence: Sequence, batch: Batch) -> PromptState | None:
        """Return a copy of the state of a sequence that is about to leave its batch, if anybody is to keep it."""
        if self._cache is None:
            return None
        return self._guarded(
            lambda: PromptState(batch.extract(sequence), sequence.num_computed).compact(self._quantization)
        )

    def keep(self, sequence: Sequence, state: PromptState) -> None:
        """Offer a state of a sequence to the policy."""
        cache = self._cache
        if cache is not None:
            tokens, submit = sequence.tokens[: state.num_tokens], sequence.submit
            self._guarded(lambda: cache.insert(tokens, state, salt=submit.salt, idle=sequence.is_idle))

    @property
    def evictable_bytes(self) -> int:
        """How much could be evicted, in bytes."""
        stats = None if self._cache is None else self._guarded(self._cache.stats)
        return 0 if stats is None else stats.nbytes - stats.pinned_bytes

    def evict(self, nbytes: int) -> None:
        """Let the policy drop what is least useful, until so many bytes are free."""
        cache = self._cache
        if cache is not None:
            self._guarded(lambda: cache.evict(nbytes))

    def check(self) -> None:
        """Verify the policy's books."""
        if self._cache is not None:
            self._guarded(self._cache.check)

    def report(self, *, clear: bool) -> CacheReport:
        """Say what the cache holds, after clearing it if that is asked for."""
        freed = self._clear() if clear else 0
        cache = self._cache
        if cache is None:
            return CacheReport(None, None, freed)
        return CacheReport(self._guarded(cache.stats), cache.spec.max_bytes, freed)

    def _clear(self) -> int:
        cache = self._cache
        if cache is None or (before := self._guarded(cache.stats)) is None:
            return 0
        self._guarded(cache.clear)
        after = self._guarded(cache.stats) if self._cache is not None else None
        return before.nbytes - (after.nbytes if after is not None else 0)

    def _keep_prompts(self, sequences: list[Sequence], layers: states.Layers) -> None:
        if not states.always_truncates(layers):
            for row, sequence in enumerate(sequences):
                if sequence.num_computed and not sequence.output:
                    own = states.extract(layers, row) if len(sequences) > 1 else layers
                    self.keep(sequence, PromptState(own, sequence.num_computed).compact(self._quantization))

    def _explain_miss(self, sequence: Sequence) -> None:
        cache = self._cache
        if cache is None or not log.isEnabledFor(logging.DEBUG):
            return
        stats = self._guarded(cache.stats)
        if stats is not None and stats.last_miss is not None:
            log.debug("Request %s reuses nothing: %s", sequence.submit.request_id, stats.last_miss)

    def _guarded(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except Exception:
            cache, self._cache = self._cache, None
            log.exception("The cache policy %s failed and is switched off", type(cache).__name__)
            if cache is not None:
                with contextlib.suppress(Exception):
                    cache.clear()
            return None


def _usable(lease: Lease, num_tokens: int) -> PromptState:
    """Return the state of a lease for a prompt of ``num_tokens`` tokens. Raises TypeError or ValueError."""
    state = lease.state
    if not isinstance(state, PromptState):
        raise TypeError(f"a lease holds a {type(state).__name__}, which is no state that was inserted")
    if not 0 < state.num_tokens < num_tokens:
        raise ValueError(f"a state of {state.num_tokens} tokens is no proper prefix of {num_tokens}")
    return state
