"""The one place that knows what MLX runs on: Metal on a Mac, the CPU elsewhere.

``prepare`` must run before the first ``import mlx.core`` of the process: MLX's Linux wheel links a reference BLAS, and
an OpenBLAS that is already loaded with global symbols replaces it (about 30 times faster float32 prefill).
"""

from __future__ import annotations

import ctypes
import glob
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import mlx.core as mx

log = logging.getLogger(__name__)

_PACKAGED = "cmeel.prefix/lib/libopenblas.so.0"
"""Where the cmeel-openblas package puts its library, below an entry of ``sys.path``."""
_SYSTEM = (
    "/usr/lib/*-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/*-linux-gnu/openblas-openmp/libopenblas.so.0",
    "/usr/lib/*-linux-gnu/libopenblas.so.0",
    "/usr/lib64/libopenblas*.so.0",
)


@cache
def prepare() -> str | None:
    """Load the fast BLAS if there is one; return its path. Idempotent, any thread.

    ``VLLM_MLX_BLAS`` names another library. Returns None on macOS, where MLX has its own, and when none was found.
    """
    if sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    for path in _candidates():
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            log.warning("Cannot load the BLAS library %s: %s", path, error)
        else:
            _limit_threads(library)
            return path
    log.warning(
        "No OpenBLAS found: float32 models run about 30 times slower. Install the Python package "
        "cmeel-openblas; it needs libgfortran5."
    )
    return None


def _limit_threads(library: ctypes.CDLL) -> None:
    """Leave half of the cores to the server: OpenBLAS's threads spin, and lose far more than they gain if they must
    share a core with somebody. ``OPENBLAS_NUM_THREADS`` overrides it.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ and hasattr(library, "openblas_set_num_threads"):
        library.openblas_set_num_threads(max(1, (os.cpu_count() or 1) // 2))


def _candidates() -> Iterator[str]:
    """Yield the libraries to try, best first."""
    if override := os.environ.get("VLLM_MLX_BLAS"):
        yield override
        return
    for folder in sys.path:
        if os.path.isfile(path := os.path.join(folder, _PACKAGED)):
            yield path
    for pattern in _SYSTEM:
        yield from sorted(glob.glob(pattern))


@cache
def has_metal() -> bool:
    """Return whether MLX computes on Metal. Imports MLX."""
    prepare()
    import mlx.core as mx

    return bool(mx.metal.is_available())


def wire_memory() -> None:
    """Let Metal keep the model's memory wired, up to what the system recommends. Engine thread; no-op on a CPU."""
    if not has_metal():
        return
    import mlx.core as mx

    mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))


def capacity() -> int:
    """Return the bytes that this process can have at most: what the system recommends for Metal, else the machine's."""
    if not has_metal():
        return machine_memory()
    import mlx.core as mx

    return int(mx.device_info()["max_recommended_working_set_size"])


def machine_memory() -> int:
    """Return the machine's memory in bytes, or what a control group leaves of it to this process."""
    physical: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *control_group_limits()])


def control_group_limits(
    groups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Yield the memory limits, in bytes, of the control groups that this process is in (Linux only).

    In a container the groups' folder may begin with the container's own, which then is the last that is looked at.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = (groups, "memory.max") if not controllers else (groups / "memory", "memory.limit_in_bytes")
        own = root / path.strip("/")
        for group in (own, *own.parents):
            try:
                text = (group / name).read_text(encoding="utf-8").strip()
            except OSError:  # no such group here, or one without a limit
                text = ""
            if text.isdecimal():
                yield int(text)
            if group == root:
                break


def limit_memory(nbytes: int) -> None:
    """Make Metal wait for memory rather than take more than this. Engine thread; no-op on a CPU."""
    if not has_metal():
        return
    import mlx.core as mx

    mx.set_memory_limit(nbytes)


class Memory(NamedTuple):
    """What MLX holds in this process, in bytes: in use, most so far, and freed but kept for the next arrays."""

    active: int
    peak: int
    buffers: int


def memory() -> Memory:
    """Return what MLX holds. Any thread."""
    import mlx.core as mx

    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory())


def held_by(call: Callable[[mx.array], None], argument: mx.array) -> int:
    """Return the bytes of all that a call computes from ``argument``, however briefly. The call must wait for MLX.

    Nothing is freed or overwritten meanwhile: MLX keeps every result while it may have to differentiate.
    """
    import mlx.core as mx

    held = 0

    def watched(traced: mx.array) -> mx.array:
        nonlocal held
        mx.synchronize()
        before = mx.get_active_memory()
        call(traced)
        mx.synchronize()
        held = mx.get_active_memory() - before
        return mx.zeros(())

    kept_buffers = mx.set_cache_limit(0)  # a buffer that is used again may be larger than what it holds
    try:
        mx.vjp(watched, [argument], [mx.zeros(())])
    finally:
        mx.set_cache_limit(kept_buffers)
    return held


def finish() -> None:
    """Wait for what the calling thread has enqueued."""
    import mlx.core as mx

    mx.synchronize()


def free_buffers() -> None:
    """Give back to the system what MLX has freed but keeps. Any thread."""
    import mlx.core as mx

    mx.clear_cache()


def free_heap() -> None:
    """Give back to the system what the C library's heap has freed but keeps: a few milliseconds. Any thread.

    Threads that serve short requests leave gaps all over it. No-op where the C library cannot.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)
    elif hasattr(library, "malloc_zone_pressure_relief"):  # macOS
        library.malloc_zone_pressure_relief(None, ctypes.c_size_t(0))


def leave_thread() -> None:
    """Finish what the calling thread enqueued, end its streams and give free buffers back to the system.

    A thread that used MLX must call it last: streams that outlive their thread abort the process when it exits.
    """
    import mlx.core as mx

    mx.synchronize()
    mx.clear_streams()
    mx.clear_cache()
