"""The policy that works over another one and keeps what that is offered on a disk as well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_caches.spec_options import positive_number, reject_unknown
from vllm_mlx_core.api import (
    CachePolicy,
    CacheSpec,
    CacheStats,
    Fetch,
    KVSegment,
    KVSnapshot,
    KVState,
    Lease,
    StateCodec,
    UsageError,
    pack_tokens,
)

from . import names
from .folder import DEFAULT_MAX_GB, MAX_GB, Folder, open_folder
from .lookup import Found, Lookup
from .names import SegmentName, SnapshotName
from .part_file import StoredPart
from .reader import Reader
from .writer import Writer

log = logging.getLogger(__name__)

WORTHWHILE_TOKENS = 16
"""For fewer tokens no file is written or read: computing them is quicker."""


class DiskFetch(Fetch):
    """A look-up that the reader's thread does. Several requests of the same prompt may wait for it."""

    def __init__(self, future: Future[Found | None], take: Callable[[Found], None], forget: Callable[[], None]) -> None:
        self.future = future
        self.num_waiting = 0
        self.is_stale = False
        """What it finds is not wanted any more: the cache was cleared meanwhile."""
        self._take = take
        self._forget = forget
        self._is_taken = False

    def keep(self) -> None:
        """Put what was found into memory, once."""
        self._forget()
        if self._is_taken or self.is_stale or self.future.cancelled():
            return
        self._is_taken = True
        error = self.future.exception()
        if error is not None:
            log.debug("Looking for stored states failed", exc_info=error)
        elif (found := self.future.result()) is not None:
            self._take(found)

    def cancel(self) -> None:
        """Leave it; if nobody else waits, it need not begin."""
        self.num_waiting -= 1
        if not self.num_waiting:
            self._forget()
            self.future.cancel()


class _Store:
    """What there is once the model is known: how its states become bytes, and the threads that write and read them."""

    def __init__(self, folder: Folder, codec: StateCodec) -> None:
        self.codec = codec
        self.identity = codec.identity
        self.model = names.model_tag(self.identity)
        self.writer = Writer(folder, self.identity)
        self.lookup = Lookup(folder, self.identity)
        self.reader = Reader()


class DiskCache(CachePolicy):
    """``--cache disk:dir=DIR[,max_gb=10][,over=NAME…]``: whatever ``over`` (``radix``) keeps in memory.

    What it is offered is written to files by a thread of its own, and read by another one when a prompt arrives that
    memory has less of. The engine thread copies states to bytes and back, and touches no file.
    """

    is_cover = True

    def __init__(self, spec: CacheSpec) -> None:
        reject_unknown("disk", spec, ("dir", "max_gb"))
        super().__init__(spec)
        self._inner = spec.over or RadixCache(CacheSpec(max_bytes=spec.max_bytes, min_tokens=spec.min_tokens))
        if self._inner.keeps_nothing or self._inner.is_cover:
            raise UsageError("The cache policy 'disk' needs one under it that keeps states in memory.")
        directory = spec.options.get("dir")
        if not directory:
            raise UsageError("The cache policy 'disk' needs the option 'dir', the folder to keep states in.")
        self._folder = open_folder(directory, positive_number("disk", spec, "max_gb", DEFAULT_MAX_GB, most=MAX_GB))
        self._store: _Store | None = None
        self._fetches: dict[tuple[str, bytes], DiskFetch] = {}
        self._fetched_tokens = self._unstored = 0

    def attach(self, codec: StateCodec | None) -> None:
        """Start to write and read, if the model can be told from others."""
        self._inner.attach(codec)
        if codec is None:
            log.warning("This model's states cannot be told from another's: none is kept in %s.", self._folder.path)
        else:
            self._store = _Store(self._folder, codec)

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        """Return what memory holds, pinned, or None. Mutates recency and counters."""
        return self._inner.match(tokens, salt=salt)

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        """Return how many tokens memory would save."""
        return self._inner.reusable(tokens, salt=salt)

    def fetch(self, tokens: Sequence[int], *, salt: str = "", idle: bool = False) -> Fetch | None:
        """Begin to look on the disk, unless memory has nearly all of the prompt, or the disk does not answer.

        Nor while files are there that were to be removed.
        """
        store, most = self._store, len(tokens) - 1
        if store is None or store.reader.is_stuck or store.writer.is_clearing:
            return None
        held = self._inner.reusable(tokens, salt=salt)
        if most - held < WORTHWHILE_TOKENS:
            return None
        packed = pack_tokens(tokens[:most])
        key = salt, packed
        fetch = self._fetches.get(key)
        if fetch is None:
            more_than, budget = held + WORTHWHILE_TOKENS - 1, self._inner.spec.max_bytes
            find = partial(store.lookup.find, packed, salt, more_than=more_than, max_bytes=budget)
            future = store.reader.submit(find)
            fetch = self._fetches[key] = DiskFetch(
                future,
                lambda found: self._take(store, found, tokens, salt, idle=idle),
                lambda: self._forget(key),
            )
        fetch.num_waiting += 1
        return fetch

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        """Offer a state to memory, and let what the disk does not have of it be written, idle or not. Mutates."""
        self._inner.insert(tokens, state, salt=salt, idle=idle)
        if self._store is not None and len(tokens) >= WORTHWHILE_TOKENS:
            self._write(self._store, pack_tokens(tokens), state, salt)

    def evict(self, nbytes: int) -> int:
        """Drop from memory; return the bytes freed. Mutates."""
        return self._inner.evict(nbytes)

    def clear(self) -> None:
        """Drop what is not pinned from memory, and this model's files from the disk. Mutates.

        The files are gone soon, and nothing that was stored before this call is found from now on.
        """
        self._inner.clear()
        for fetch in self._fetches.values():
            fetch.is_stale = True
        self._fetches.clear()
        if self._store is not None:
            self._store.writer.clear(self._store.model)

    def stats(self) -> CacheStats:
        """Return memory's counters and those of the disk. Does not mutate."""
        refused = 0 if self._store is None else self._store.writer.refused
        return replace(
            self._inner.stats(),
            stored_bytes=self._folder.nbytes,
            fetched_tokens=self._fetched_tokens,
            unstored_parts=self._unstored + refused,
        )

    def check(self) -> None:
        """Raise AssertionError if memory's books disagree with its contents."""
        self._inner.check()

    def close(self) -> None:
        """Write what waits, but not for long, and end the threads; a read is not waited for. No call follows."""
        if self._store is not None:
            self._store.reader.close()
            self._store.writer.close()
        self._inner.close()

    def _forget(self, key: tuple[str, bytes]) -> None:
        self._fetches.pop(key, None)

    def _write(self, store: _Store, packed: bytes, state: KVState, salt: str) -> None:
        """Hand over the parts of a state that the disk does not have, as many from the front as there is room for."""
        snapshot = state.snapshot
        point = names.origin(store.identity, salt)
        rest = 0 if snapshot is None else snapshot.nbytes
        nbytes_per_token = (state.nbytes - rest) / state.num_tokens
        room = store.writer.room
        chain: list[str] = []
        taken: list[tuple[str, bytes, KVSegment | KVSnapshot]] = []
        for start, stop in names.cut(packed):
            tokens = names.part(packed, start, stop)
            name = SegmentName(store.model, point, stop - start, snapshot is not None, names.beyond(point, tokens))
            point = name.end
            chain.append(str(name))
            if not store.writer.knows(chain[-1]):
                room -= round(nbytes_per_token * (stop - start))
                if room < 0:
                    self._unstored += 1
                    break
                taken.append((chain[-1], tokens, state.segment(start, stop)))
        else:
            if snapshot is not None:
                chain.append(str(SnapshotName(store.model, point)))
                if not store.writer.knows(chain[-1]):
                    taken.append((chain[-1], b"", snapshot))
        try:
            parts = [StoredPart(name, tokens, store.codec.dump(part)) for name, tokens, part in taken]
        except ValueError as error:
            self._unstored += len(taken)
            log.debug("A state cannot be written: %s", error)
        else:
            store.writer.store(chain, parts)

    def _take(self, store: _Store, found: Found, tokens: Sequence[int], salt: str, *, idle: bool) -> None:
        """Put a state that was read into memory."""
        try:
            first, *after = map(store.codec.load_segment, found.segments)
            snapshot = None if found.snapshot is None else store.codec.load_snapshot(found.snapshot)
            state = first.join(after, snapshot)
            if state.num_tokens != found.num_tokens:
                raise ValueError(f"{found.num_tokens} tokens were expected, it has read {state.num_tokens}")
        except ValueError as error:
            log.debug("A stored state is of no use and removed: %s", error)
            for name in found.files:
                store.writer.delete(name)
            return
        store.writer.learn(found.files)
        self._fetched_tokens += found.num_tokens
        self._inner.insert(tokens[: found.num_tokens], state, salt=salt, idle=idle)
