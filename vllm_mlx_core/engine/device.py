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
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

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


class Memory(NamedTuple):
    """What MLX holds in this process, in bytes: in use, most so far, and freed but kept for the next arrays."""

    active: int
    peak: int
    buffers: int


def memory() -> Memory:
    """Return what MLX holds. Any thread."""
    import mlx.core as mx

    return Memory(mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory())


def leave_thread() -> None:
    """Finish what the calling thread enqueued, end its streams and give free buffers back to the system.

    A thread that used MLX must call it last: streams that outlive their thread abort the process when it exits.
    """
    import mlx.core as mx

    mx.synchronize()
    mx.clear_streams()
    mx.clear_cache()
