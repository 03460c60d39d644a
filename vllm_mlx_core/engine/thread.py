"""An engine in a thread of this process: the thread owns every MLX call of its model, from loading to the last free.

MLX streams belong to the thread that made them, so nothing but plain records crosses: commands go in through a queue,
step results come out through one callback per step.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakSet

from vllm_mlx_core.api import (
    CachePolicy,
    EngineSettings,
    Generator,
    ModelError,
    ModelFamily,
    Progress,
    VllmMlxError,
    no_progress,
)

from . import device
from .amounts import format_bytes
from .messages import BROKEN, STOPPED, Command, EngineReady, Shutdown, StepResult

if TYPE_CHECKING:
    from .core import EngineCore
    from .selftest import ServingMode

log = logging.getLogger(__name__)

EXIT_GRACE_S = 10.0
_started: WeakSet[EngineThread] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """End engines that nobody closed: a thread inside MLX when the interpreter goes away aborts the process."""
    engines = list(_started)
    try:
        for engine in engines:
            engine.stop(timeout_s=0)
        deadline = time.monotonic() + EXIT_GRACE_S
        for engine in engines:
            engine.stop(timeout_s=max(0.0, deadline - time.monotonic()))
    except KeyboardInterrupt:  # somebody insists
        os._exit(130)


class EngineThread:
    """A model and its engine (``EngineTransport``). The callbacks of ``connect`` run on the engine thread."""

    def __init__(
        self,
        name: str,
        family: ModelFamily,
        cache: CachePolicy,
        settings: EngineSettings,
        *,
        progress: Progress = no_progress,
    ) -> None:
        self._family = family
        self._cache = cache
        self._settings = settings
        self._on_step: Callable[[StepResult], None] = lambda step: None
        self._on_end: Callable[[BaseException | None], None] = lambda error: None
        self._progress = progress
        self._is_stopping = False
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()  # None only wakes
        self._ready: Future[EngineReady] = Future()
        self._thread = threading.Thread(target=self._main, name=f"engine {name}", daemon=True)

    def start(self) -> Future[EngineReady]:
        """Begin to load; the future has the result, or the ModelError that prevented it."""
        _started.add(self)
        self._thread.start()
        return self._ready

    def connect(self, on_step: Callable[[StepResult], None], on_end: Callable[[BaseException | None], None]) -> None:
        """Say who hears of every step's result, and of the end. Called once, before the first ``send``."""
        self._on_step, self._on_end = on_step, on_end

    def send(self, command: Command) -> None:
        """Hand a command to the engine. Never blocks; ignored after the end."""
        self._inbox.put(command)

    def stop(self, timeout_s: float | None = None) -> None:
        """End the engine after its current step, fail what still runs, free the model, and wait for that."""
        self._is_stopping = True
        self._inbox.put(Shutdown())
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @property
    def is_alive(self) -> bool:
        """Whether the engine still takes commands."""
        return self._thread.is_alive()

    # -- the engine thread ----------------------------------------------------------------------------------------

    def _main(self) -> None:
        error: BaseException | None = None
        try:
            self._run()
        except BaseException as caught:
            error = caught
            if not self._ready.done():
                self._ready.set_exception(caught)
                if not isinstance(caught, VllmMlxError):
                    log.debug("Loading failed", exc_info=True)
            else:
                log.exception("The engine of %s broke", self._thread.name)
        finally:
            for clean_up in (self._cache.close, device.leave_thread):
                try:
                    clean_up()
                except Exception:
                    log.exception("Cleaning up after %s failed", self._thread.name)
            self._on_end(error)

    def _run(self) -> None:
        device.prepare()
        from . import cpu_attention, state_cost
        from .converted import convert
        from .core import EngineCore
        from .memory_guard import MemoryPlan
        from .prompt_state import check_quantization
        from .selftest import ServingMode

        budget = int(device.capacity() * self._settings.memory_share)
        device.wire_memory()
        device.limit_memory(budget)
        cpu_attention.install()
        generator = convert(self._family.load_generator(), self._settings)
        mode = self._self_test(generator) if self._settings.self_test else ServingMode()
        if self._settings.max_kv_size is not None:  # a window forgets while it reads, each prompt at its own place
            mode = replace(mode, prefill="solo")
        if mode.reason:
            log.warning("Serving %s: %s.", mode, mode.reason)
        if self._settings.kv_cache_quantization is not None:
            check_quantization(generator, self._settings.kv_cache_quantization)
        memory = MemoryPlan(
            budget,
            weights=generator.nbytes,
            cost=state_cost.learn(generator),
            max_chunk=self._settings.max_num_batched_tokens,
            batched=mode.batched,
        )
        if not memory.max_sequence_tokens:
            raise ModelError(
                f"The weights take {format_bytes(generator.nbytes)} of the {format_bytes(budget)} that may be used: "
                "that leaves too little for requests. Raise --gpu-memory-utilization, or choose a smaller model."
            )
        core = EngineCore(
            generator,
            self._settings,
            mode,
            self._cache,
            lambda step: self._on_step(step),
            memory=memory,
            wake=lambda: self._inbox.put(None),
        )
        self._ready.set_result(
            EngineReady(
                vocab_size=generator.vocab_size,
                nbytes=generator.nbytes,
                mode=str(mode),
                mode_reason=mode.reason,
                captured=mode.captured,
                max_sequence_tokens=memory.max_sequence_tokens,
            )
        )
        try:
            self._loop(core)
        except BaseException:
            core.fail_all(BROKEN)
            raise
        core.fail_all(STOPPED)

    def _self_test(self, generator: Generator) -> ServingMode:
        from . import kernels
        from .selftest import self_test

        may_capture = not self._settings.enforce_eager
        try:
            return self_test(generator, self._report, may_capture=may_capture)
        except Exception as error:
            if self._is_stopping or not kernels.do_without(error):
                raise
            return self_test(generator, self._report, may_capture=may_capture)

    def _report(self, what: str, fraction: float | None = None) -> None:
        """Tell how far loading is. Raises ModelError if nobody waits for it any more."""
        if self._is_stopping:
            raise ModelError("The engine was stopped while it loaded.")
        self._progress(what, fraction)

    def _loop(self, core: EngineCore) -> None:
        """Step while there is work; sleep on the queue while there is none."""
        while True:
            if not core.has_work:
                core.rest()
            try:
                command = self._inbox.get(block=not core.has_work, timeout=core.timeout_s)
            except queue.Empty:
                if core.has_work:
                    core.step()
            else:
                if command is None:
                    continue
                if isinstance(command, Shutdown):
                    return
                core.handle(command)
