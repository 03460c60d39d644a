"""The Python interface: a model in this process, through the same engine that the server uses.

from vllm_mlx_core import LLM, SamplingParams

with LLM("path/or/hub-id") as llm:
    for completion in llm.generate(["Once upon a time", "The sky is"], SamplingParams(max_tokens=20)):
        print(completion.text)
    print(llm.chat([{"role": "user", "content": "Hi"}]).text)
    for piece in llm.stream([{"role": "user", "content": "Tell me a story."}]):
        print(piece, end="", flush=True)
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from .api import (
    Chat,
    Completion,
    GenerateRequest,
    Infill,
    LoadOptions,
    ModelInfo,
    Output,
    Prompt,
    SamplingParams,
    Settings,
    TextDelta,
)
from .host import Host
from .residency.loader import LoadedModel, load_model

T = TypeVar("T")

Messages = Sequence[Mapping[str, Any]]
NO_TIMEOUT_S = float(365 * 24 * 3600)
GRACE_S = 5.0
"""How long requests may take to hear that their engine has stopped."""


class AsyncEngine:
    """A model and its engine for asyncio programs. Load it by ``async with`` or ``start``; one event loop.

    ``model`` is a path, a hub id or a built-in name; None is the default model. ``plugins`` are what ``--plugin``
    takes. ``settings`` and ``options`` say what the command line would.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        *,
        plugins: Sequence[str] = (),
        settings: Settings | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        self._reference = None if model is None else str(model)
        self._plugins = plugins
        self._settings = settings or Settings(timeout_s=NO_TIMEOUT_S)
        self._options = options or LoadOptions()
        self._loaded: LoadedModel | None = None
        self._starting = asyncio.Lock()
        self._request_ids = count(1)

    async def start(self) -> None:
        """Load the model, once. Raises ModelError, PluginError or UsageError. Cancelled, it frees what it loaded."""
        async with self._starting:
            if self._loaded is None:
                loading = _Loading()
                try:
                    self._loaded = await asyncio.to_thread(loading.run, self._load)
                except asyncio.CancelledError:
                    loading.abandon()
                    raise

    def _load(self) -> LoadedModel:
        host = Host()
        host.load(self._plugins)
        return load_model(self._reference, host, self._settings, self._options)

    async def aclose(self) -> None:
        """Stop the engine and free the model. Requests that still run fail."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            await asyncio.to_thread(loaded.client.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self.loaded.info

    @property
    def loaded(self) -> LoadedModel:
        """The loaded model; raises RuntimeError before ``start``."""
        if self._loaded is None:
            raise RuntimeError("The engine is not started: use `async with AsyncEngine(…)` or `await start()`.")
        return self._loaded

    async def outputs(
        self, prompt: Prompt | Messages, sampling: SamplingParams | None = None, *, n: int = 1
    ) -> AsyncGenerator[Output, None]:
        """Yield a request's outputs as they are made. Leaving the iteration early aborts it. Raises RequestError."""
        request = GenerateRequest(
            request_id=f"req-{next(self._request_ids)}",
            model=self.model.id,
            prompt=as_prompt(prompt),
            sampling=sampling or SamplingParams(),
            n=n,
        )
        stream = await self.loaded.client.generate(request)
        try:
            async for outputs in stream:
                for output in outputs:
                    yield output
        finally:
            await stream.aclose()

    async def generate(self, prompt: Prompt | Messages, sampling: SamplingParams | None = None) -> Completion:
        """Return one whole completion of a text, token ids or a conversation."""
        completion = Completion()
        async with contextlib.aclosing(self.outputs(prompt, sampling)) as outputs:
            async for output in outputs:
                completion.add(output)
        return completion

    async def stream(
        self, prompt: Prompt | Messages, sampling: SamplingParams | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield the visible text of one completion piece by piece."""
        async with contextlib.aclosing(self.outputs(prompt, sampling)) as outputs:
            async for output in outputs:
                for event in output.events:
                    if isinstance(event, TextDelta):
                        yield event.text


class _Loading:
    """A load that may be given up while it runs: then whoever comes last closes the model. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self._loaded: LoadedModel | None = None

    def run(self, load: Callable[[], LoadedModel]) -> LoadedModel:
        loaded = load()
        with self._lock:
            self._loaded = loaded
            abandoned = self._abandoned
        if abandoned:
            loaded.client.close()
        return loaded

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            loaded = self._loaded
        if loaded is not None:
            loaded.client.close()


class LLM:
    """A model in this process for ordinary (not asyncio) programs. The constructor loads it. Any one thread at a time.

    Takes what ``AsyncEngine`` takes; close it, or use it as a context manager, to free the model.
    """

    def __init__(
        self,
        model: str | PathLike[str] | None = None,
        *,
        plugins: Sequence[str] = (),
        max_num_seqs: int | None = None,
        settings: Settings | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        settings = settings or Settings(timeout_s=NO_TIMEOUT_S)
        if max_num_seqs is not None:
            settings = replace(settings, engine=replace(settings.engine, max_num_seqs=max_num_seqs))
        self._engine = AsyncEngine(model, plugins=plugins, settings=settings, options=options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-mlx LLM", daemon=True)
        self._closing = threading.Lock()
        self._thread.start()
        try:
            self._run(self._engine.start())
        except BaseException:
            self.close()
            raise

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._engine.model

    def generate(
        self, prompts: Prompt | Messages | Sequence[Prompt | Messages], sampling: SamplingParams | None = None
    ) -> list[Completion]:
        """Complete many prompts in one batch and return the completions in their order.

        A prompt is a raw text, token ids or a conversation; one may be given alone. Any number is fine: what does not
        fit the batch waits.
        """
        return self._run(self._generate(_listed(prompts), sampling))

    def chat(self, messages: Messages, sampling: SamplingParams | None = None) -> Completion:
        """Answer one conversation."""
        return self._run(self._engine.generate(messages, sampling))

    def stream(self, prompt: Prompt | Messages, sampling: SamplingParams | None = None) -> Iterator[str]:
        """Yield the visible text of one completion as it is made. Leaving the iteration early aborts it."""
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async with contextlib.aclosing(self._engine.stream(prompt, sampling)) as stream:
                    async for piece in stream:
                        pieces.put(piece)
            finally:
                pieces.put(None)

        future = self._submit(pump())
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Stop the engine and free the model. Safe to call twice; calls that other threads wait for fail."""
        with self._closing:
            if self._loop.is_closed():
                return
            self._run(self._shut_down())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _shut_down(self) -> None:
        """Stop the engine and let everything else on the loop hear of it, so that no thread waits for ever."""
        await self._engine.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, deaf = await asyncio.wait(others, timeout=GRACE_S)
            for task in deaf:
                task.cancel()
            await asyncio.gather(*deaf, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _generate(
        self, prompts: Sequence[Prompt | Messages], sampling: SamplingParams | None
    ) -> list[Completion]:
        engine = self._engine.loaded.client.settings.engine
        places = asyncio.Semaphore(engine.max_num_seqs + engine.max_queue)

        async def one(prompt: Prompt | Messages) -> Completion:
            async with places:
                return await self._engine.generate(prompt, sampling)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(prompt)) for prompt in prompts]
        except BaseExceptionGroup as errors:  # the first failure ended the others
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._submit(work).result()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("This LLM is closed.")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _listed(prompts: Prompt | Messages | Sequence[Prompt | Messages]) -> Sequence[Prompt | Messages]:
    """Return several prompts as they are and a single one in a list."""
    if isinstance(prompts, str | Chat | Infill) or (prompts and isinstance(prompts[0], int | Mapping)):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def as_prompt(prompt: Prompt | Messages) -> Prompt:
    """Return ``prompt`` with a list of messages made a conversation."""
    if isinstance(prompt, str | Chat | Infill):
        return prompt
    if prompt and isinstance(prompt[0], Mapping):
        return Chat(messages=prompt)  # type: ignore[arg-type]
    return prompt  # type: ignore[return-value]
