"""A plugin with a cache policy that verifies another one's books and budget after every call: ``checked:over=NAME``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import CachePolicy, CacheSpec, CacheStats, Fetch, KVState, Lease, Registrar, StateCodec, hookimpl


class CheckedLease(Lease):
    def __init__(self, inner: Lease, check: Any) -> None:
        self.state = inner.state
        self._inner = inner
        self._check = check

    def release(self) -> None:
        self._inner.release()
        self._check()


class CheckedCache(CachePolicy):
    is_cover = True

    def __init__(self, spec: CacheSpec) -> None:
        super().__init__(spec)
        assert spec.over is not None
        self._inner = spec.over

    def attach(self, codec: StateCodec | None) -> None:
        self._inner.attach(codec)

    def reusable(self, tokens: Sequence[int], *, salt: str = "") -> int:
        return self._inner.reusable(tokens, salt=salt)

    def fetch(self, tokens: Sequence[int], *, salt: str = "", idle: bool = False) -> Fetch | None:
        return self._inner.fetch(tokens, salt=salt, idle=idle)

    def match(self, tokens: Sequence[int], *, salt: str = "") -> Lease | None:
        lease = self._inner.match(tokens, salt=salt)
        self.check()
        return lease and CheckedLease(lease, self.check)

    def insert(self, tokens: Sequence[int], state: KVState, *, salt: str = "", idle: bool = False) -> None:
        self._inner.insert(tokens, state, salt=salt, idle=idle)
        self.check()

    def evict(self, nbytes: int) -> int:
        freed = self._inner.evict(nbytes)
        self.check()
        return freed

    def clear(self) -> None:
        self._inner.clear()
        self.check()

    def stats(self) -> CacheStats:
        return self._inner.stats()

    def check(self) -> None:
        self._inner.check()
        stats = self._inner.stats()
        if self.spec.max_bytes is not None and stats.nbytes > max(self.spec.max_bytes, stats.pinned_bytes):
            raise AssertionError(f"{stats.nbytes} bytes are above the budget of {self.spec.max_bytes}.")

    def close(self) -> None:
        self._inner.close()


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    registrar.add("cache_policies", "checked", CheckedCache)
