"""The engine's thread: it ends soon after it was told to, whatever it is doing."""

from __future__ import annotations

import threading
import time
from typing import Any

import mlx.core as mx
import pytest

from vllm_mlx_caches.off import OffCache
from vllm_mlx_core.api import CacheSpec, EngineSettings, ModelError
from vllm_mlx_core.engine.messages import EngineReport, Inspect, StepResult, Submit
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


@pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="the time of one thread cannot be read here")
def test_an_idle_engine_sleeps_until_there_is_work(generator):
    loaded: Any = generator("qwen3")
    ended, told = threading.Event(), threading.Event()
    reports: list[EngineReport] = []

    def heard(step: StepResult) -> None:
        reports.extend(step.reports)
        if len(reports) == 3:
            told.set()
        if any(update.finish for update in step.updates):
            ended.set()

    engine = EngineThread("test", Family(lambda: loaded), OffCache(CacheSpec()), EngineSettings(self_test=False))  # type: ignore[arg-type]
    engine.connect(heard, lambda error: None)
    engine.start().result(30)
    (thread,) = (each for each in threading.enumerate() if each.name == "engine test")
    try:
        engine.send(Submit(sequence_id=1, request_id="1", prompt=[5, 6, 7], max_tokens=3))
        assert ended.wait(30)
        clock = time.pthread_getcpuclockid(thread.ident or 0)
        for _ in range(200):  # it has a last step to drop
            before = time.clock_gettime(clock)
            time.sleep(0.05)
            if time.clock_gettime(clock) == before:
                break
        assert time.clock_gettime(clock) == before, "it takes no time of the processor"
        for query_id in range(3):
            engine.send(Inspect(query_id))
        assert told.wait(30)
        assert len({report.steps for report in reports}) == 1, "a question is no step"
        ended.clear()
        engine.send(Submit(sequence_id=2, request_id="2", prompt=[5, 6, 7], max_tokens=3))
        assert ended.wait(30), "work wakes it"
    finally:
        engine.stop(timeout_s=30)
