"""The engine's thread: it ends soon after it was told to, whatever it is doing."""

from __future__ import annotations

import threading
from typing import Any

import mlx.core as mx
import pytest

from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheSpec, EngineSettings, ModelError
from vllm_mlx_core.engine.selftest import STEPS
from vllm_mlx_core.engine.thread import EngineThread


class Family:
    """A family whose compute half is there already."""

    def __init__(self, load: Any) -> None:
        self.load_generator = load


def test_a_stop_while_the_self_test_runs_ends_it_at_its_next_check(generator):
    reached, go_on = threading.Event(), threading.Event()
    calls = 0

    def load() -> Any:
        loaded: Any = generator("qwen3")
        forward = loaded.forward

        def counted(tokens: mx.array, layers: list[Any]) -> mx.array:
            nonlocal calls
            calls += 1
            return forward(tokens, layers)

        loaded.forward = counted
        return loaded

    def progress(what: str, fraction: float | None = None) -> None:
        reached.set()
        assert go_on.wait(30)

    engine = EngineThread("test", Family(load), OffCache(CacheSpec()), EngineSettings(), progress=progress)  # type: ignore[arg-type]
    loading = engine.start()
    assert reached.wait(30)
    engine.stop(timeout_s=0)
    go_on.set()
    with pytest.raises(ModelError, match="stopped"):
        loading.result(30)
    engine.stop(timeout_s=30)
    assert not engine.is_alive
    assert calls <= 1 + STEPS, "one prompt, read alone"
