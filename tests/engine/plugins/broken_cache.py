"""A plugin with a cache policy that breaks where its option says: ``broken:where=match``."""

from __future__ import annotations

from typing import Any

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core.api import CacheSpec, Lease, Registrar, hookimpl


class BrokenLease(Lease):
    def __init__(self, inner: Lease, where: str) -> None:
        self._inner = inner
        self._where = where
        self.state: Any = "nonsense" if where == "state" else inner.state

    def release(self) -> None:
        self._inner.release()
        if self._where == "release":
            raise RuntimeError("release broke")


class BrokenCache(LRUCache):
    def __init__(self, spec: CacheSpec) -> None:
        super().__init__(CacheSpec(max_bytes=spec.max_bytes))
        self._where = spec.options["where"]

    def _break(self, where: str) -> None:
        if self._where == where:
            raise RuntimeError(f"{where} broke")

    def match(self, tokens: Any, *, salt: str = "") -> Lease | None:
        self._break("match")
        if self._where == "whole":  # more than the contract allows: the state of the whole prompt
            tokens = [*tokens, 0]
        lease = super().match(tokens, salt=salt)
        return lease and BrokenLease(lease, self._where)

    def insert(self, tokens: Any, state: Any, *, salt: str = "", idle: bool = False) -> None:
        self._break("insert")
        super().insert(tokens, state, salt=salt, idle=idle)

    def clear(self) -> None:
        super().clear()
        if self._where in ("clear", "match"):
            raise RuntimeError("clear broke")

    def check(self) -> None:
        self._break("check")
        super().check()

    def close(self) -> None:
        if self.stats().misses:  # a policy that was only made to see whether it can be is let go
            self._break("close")
        super().close()


@hookimpl
def vllm_mlx_register(registrar: Registrar) -> None:
    registrar.add("cache_policies", "broken", BrokenCache)
