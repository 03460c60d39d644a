"""A disk cache over fake states, and what its folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_mlx_caches.disk.part_file import StoredPart, decode
from vllm_mlx_caches.disk.policy import DiskCache
from vllm_mlx_caches.radix import RadixCache
from vllm_mlx_core.api import CachePolicy, CacheSpec
from vllm_mlx_core.testing import FakeCodec, FakeState

WAIT_S = 30


def open_cache(
    folder: Path,
    *,
    identity: str = "fake",
    over: type[CachePolicy] = RadixCache,
    max_gb: str = "1",
    max_bytes: int | None = None,
) -> DiskCache:
    """Return a cache as the next process would make it."""
    options = {"dir": str(folder), "max_gb": max_gb}
    cache = DiskCache(CacheSpec(max_bytes=max_bytes, options=options, over=over(CacheSpec(max_bytes=max_bytes))))
    cache.attach(FakeCodec(identity))
    return cache


def keep(cache: CachePolicy, tokens: Sequence[int], *, point: bool = False, salt: str = "", idle: bool = False) -> None:
    """Offer the state after some tokens; ``point``: one that can be resumed nowhere else."""
    cache.insert(tokens, FakeState(tuple(tokens), can_truncate=not point), salt=salt, idle=idle)


def fetched(cache: CachePolicy, tokens: Sequence[int], *, salt: str = "") -> int:
    """Return how many tokens a prompt saves once what the disk has of it is there."""
    fetch = cache.fetch(tokens, salt=salt)
    if fetch is not None:
        fetch.future.exception(WAIT_S)
        fetch.keep()
    lease = cache.match(tokens, salt=salt)
    if lease is None:
        return 0
    assert isinstance(lease.state, FakeState)
    assert lease.state.tokens == tuple(tokens)[: lease.state.num_tokens]
    lease.release()
    cache.check()
    return lease.state.num_tokens


def files(folder: Path) -> list[Path]:
    """Return the visible files, oldest use first."""
    return sorted(folder.glob("vllm-mlx-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)


def size(folder: Path) -> int:
    """Return the bytes of everything in a folder that may be written to meanwhile."""
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def parts(folder: Path, identity: str = "fake") -> list[StoredPart]:
    """Return what the files hold. Raises DamagedFile if one does not hold what was written."""
    return [decode(path.read_bytes(), path.name, identity) for path in files(folder)]
