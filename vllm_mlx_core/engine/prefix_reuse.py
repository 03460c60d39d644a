"""What the engine takes from the prefix cache and offers it. Engine thread only."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from vllm_mlx_core.api import CachePolicy, CacheStats, Fetch, KVQuantization, Lease, StateCodec

from . import states
from .batch import Batch
from .prompt_state import PromptState
from .reading_stops import MIN_GAP, stops_at
from .sequence import Sequence

T = TypeVar("T")
log = logging.getLogger(__name__)


class CacheReport(NamedTuple):
    """What the cache holds, and what clearing it has freed; ``stats`` and ``max_bytes`` are None if there is none."""

    stats: CacheStats | None
    max_bytes: int | None
    freed_bytes: int


class PrefixReuse:
    """A policy behind a guard: when it raises, or a state cannot be copied, that is the end of reuse and of no more.

    From ``truncatable_tokens`` tokens on a state of the model cannot go back.
    """

    def __init__(
        self,
        cache: CachePolicy | None,
        quantization: KVQuantization | None = None,
        *,
        truncatable_tokens: float = math.inf,
    ) -> None:
        self._cache = cache
        self._quantization = quantization
        self._truncatable_tokens = truncatable_tokens

    def attach(self, codec: StateCodec | None) -> None:
        """Tell the policy how states become bytes. Once, and first."""
        if self._cache is not None:
            cache = self._cache
            self._guarded(lambda: cache.attach(codec))

    def fetch(self, sequence: Sequence) -> Fetch | None:
        """Begin to bring what is known of the beginning of a sequence that has arrived; None: do not wait."""
        cache, submit = self._cache, sequence.submit
        if cache is None or sequence.is_scored:
            return None
        return self._guarded(
            lambda: cache.fetch(sequence.prompt_cache_ids, salt=submit.salt, idle=sequence.leaves_idle_states)
        )

    def receive(self, fetch: Fetch) -> None:
        """Take what was fetched, or end the waiting for it if it is not there yet."""
        if self._cache is not None:
            self._guarded(fetch.keep if fetch.future.done() else fetch.cancel)

    def cancel(self, fetch: Fetch) -> None:
        """Say that nobody waits for a fetch any more."""
        if self._cache is not None:
            self._guarded(fetch.cancel)

    def find(self, sequence: Sequence) -> None:
        """Give a sequence that was just admitted what is known of its beginning, and stops in the rest. Mutates it.

        It has no stops if the state at the end of its prompt can go back to them.
        """
        cache = self._cache
        if cache is None or sequence.isolated or sequence.is_scored:
            return
        self._resume(sequence, cache)
        end = len(sequence.submit.prompt) - 1
        if end >= self._truncatable_tokens:
            sequence.stops |= stops_at(sequence.submit.boundaries, start=sequence.num_computed, end=end)

    def _resume(self, sequence: Sequence, cache: CachePolicy) -> None:
        tokens = sequence.cache_ids
        lease = self._guarded(lambda: cache.match(tokens, salt=sequence.submit.salt))
        if lease is None:
            self._explain_miss(sequence)
            return
        sequence.lease = lease
        state = self._guarded(lambda: _usable(lease, len(tokens)))
        if state is None or state.num_tokens < cache.spec.min_tokens:
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

    def keep_at_stop(self, sequence: Sequence) -> None:
        """Keep the state of a prompt whose reading pauses because its state is wanted there."""
        layers = sequence.layers
        if self._cache is not None and layers is not None and sequence.num_computed in sequence.stops:
            self._guarded(lambda: self._keep_copy(sequence, layers))

    def keep_prompts(self, sequences: list[Sequence], layers: states.Layers) -> None:
        """Keep the state at the end of each prompt where a later one could not be cut back to it.

        Not where one has been kept shortly before: the end is the same if the last message is, and costs as much again.
        """
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
            tokens, submit = sequence.cache_ids[: state.num_tokens], sequence.submit
            self._guarded(lambda: cache.insert(tokens, state, salt=submit.salt, idle=sequence.leaves_idle_states))

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
                if sequence.num_computed and not sequence.output and not _has_passed_stop(sequence):
                    self._keep_copy(sequence, states.extract(layers, row) if len(sequences) > 1 else layers)

    def _keep_copy(self, sequence: Sequence, layers: states.Layers) -> None:
        self.keep(sequence, PromptState(layers, sequence.num_computed).compact(self._quantization))

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


def _has_passed_stop(sequence: Sequence) -> bool:
    """Return whether its state was kept so shortly before that it is hardly worth more now."""
    return any(0 < sequence.num_computed - stop < MIN_GAP for stop in sequence.stops)


def _usable(lease: Lease, num_tokens: int) -> PromptState:
    """Return the state of a lease for a prompt of ``num_tokens`` tokens. Raises TypeError or ValueError."""
    state = lease.state
    if not isinstance(state, PromptState):
        raise TypeError(f"a lease holds a {type(state).__name__}, which is no state that was inserted")
    if not 0 < state.num_tokens < num_tokens:
        raise ValueError(f"a state of {state.num_tokens} tokens is no proper prefix of {num_tokens}")
    return state
