"""One loaded model as front-ends reach it: renders, checks and queues requests, and hands results back.

Runs on the event-loop thread; the engine behind it is reached by messages only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from vllm_mlx_core.api import (
    IDLE_PRIORITY,
    ActiveRequest,
    EngineFailed,
    GenerateRequest,
    InvalidRequest,
    ModelInfo,
    ModelStats,
    Overloaded,
    ReasoningParser,
    RenderedPrompt,
    RequestCancelled,
    RequestError,
    RequestSummary,
    RequestTimedOut,
    Settings,
    StepStats,
    TextProcessor,
    ToolParser,
)

from .messages import BROKEN, STOPPED, Abort, EngineReady, EngineReport, Inspect, StepResult, Submit
from .prompts import PromptRenderer, naming_the_prompt
from .request_parsing import RequestParsing
from .sampling import output_budget, resolve
from .stream import FLUSH_S, RequestStream
from .transport import EngineTransport

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class Observers:
    """Whom a client tells, all on the event-loop thread: the host's hooks in a server, nobody in a test."""

    request_received: Callable[[GenerateRequest], None] = lambda request: None
    request_finished: Callable[[RequestSummary], None] = lambda summary: None
    step_finished: Callable[[StepStats], None] | None = None


def cache_salt(request: GenerateRequest, settings: Settings) -> str:
    """Return what tells apart the cached prompts that a request may share from those that it may not. Pure."""
    if settings.cache_isolation == "none":
        return request.cache_salt
    user = request.user or ""
    return f"{len(user)} {user} {request.cache_salt}"  # of a known length, so that no salt can pass for another user's


class ModelClient:
    """A loaded model that is being served. Made on any thread; used on one event loop."""

    def __init__(
        self,
        info: ModelInfo,
        processor: TextProcessor,
        engine: EngineTransport,
        ready: EngineReady,
        settings: Settings,
        *,
        tool_parser: type[ToolParser] | None = None,
        reasoning_parser: type[ReasoningParser] | None = None,
        cache_policy: str = "off",
        observers: Observers = Observers(),
    ) -> None:
        self.info = info
        self._processor = processor
        self._prompts = PromptRenderer(processor, settings)
        self.settings = settings
        self._tool_parser = tool_parser
        self._reasoning_parser = reasoning_parser
        self._observers = observers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: dict[int, RequestStream] = {}
        self._late: set[RequestStream] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._sequence_ids = count(1)
        self._num_invalid_calls = 0  # this and the next three: of requests that have ended
        self._num_requests = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._loaded_at = time.monotonic()
        self._cache_policy = cache_policy
        self._query_ids = count(1)
        self._queries: dict[int, asyncio.Future[EngineReport]] = {}
        self._ready = ready
        self._last_step: StepResult | None = None
        self._broken: RequestError | None = None
        self._engine = engine
        engine.connect(self._on_step, self._on_end)

    # -- life -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the engine and free the model. Streams that still run fail. Any thread."""
        self._engine.stop()

    def health(self) -> Mapping[str, Any]:
        """Return a JSON object: status, what runs and waits, serving mode, calls so far that did not fit their tool."""
        step = self._last_step
        alive = self._engine.is_alive and self._broken is None
        return {
            "status": "ok" if alive else "error",
            "running": step.running if step else 0,
            "waiting": step.waiting if step else 0,
            "requests": len(set(self._streams.values())),
            "mode": self._ready.mode,
            "captured": self._ready.captured,
            "invalid_tool_calls": self._num_invalid_calls,
        }

    async def stats(self) -> ModelStats:
        """Ask the engine what it holds; it answers between two steps. Raises EngineFailed if it has ended."""
        report = await self._inspect(clear_cache=False)
        step = self._last_step
        return ModelStats(
            model=self.info.id,
            uptime_s=time.monotonic() - self._loaded_at,
            steps=report.steps,
            running=step.running if step else 0,
            waiting=step.waiting if step else 0,
            requests=self._num_requests,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            cache_policy=self._cache_policy,
            cache=report.cache,
            cache_max_bytes=report.cache_max_bytes,
            weights_bytes=self._ready.nbytes,
            active_memory_bytes=report.active_memory_bytes,
            peak_memory_bytes=report.peak_memory_bytes,
            buffer_memory_bytes=report.buffer_memory_bytes,
        )

    async def clear_cache(self) -> int:
        """Drop what the prefix cache holds and no request uses; return the bytes freed. Raises EngineFailed."""
        return (await self._inspect(clear_cache=True)).freed_bytes

    async def _inspect(self, *, clear_cache: bool) -> EngineReport:
        self._bind_loop()
        self._check_alive()
        query_id = next(self._query_ids)
        answer: asyncio.Future[EngineReport] = asyncio.get_running_loop().create_future()
        self._queries[query_id] = answer
        try:
            self._engine.send(Inspect(query_id, clear_cache))
            return await answer
        finally:
            self._queries.pop(query_id, None)

    def active_requests(self) -> Sequence[ActiveRequest]:
        """Return what runs and waits, the oldest first."""
        return [stream.describe() for stream in dict.fromkeys(self._streams.values())]

    def cancel(self, request_id: str, *, user: str | None = None) -> bool:
        """End the requests with this ``request_id`` or ``trace_id``; see ``api.EngineClient``."""

        def matches(request: GenerateRequest | RequestStream) -> bool:
            return request_id in (request.request_id, request.trace_id) and user in (None, request.user)

        found = [stream for stream in set(self._streams.values()) if matches(stream)]
        for stream in found:
            stream.fail(RequestCancelled("The request was cancelled.", code="cancelled"))
        return self._prompts.cancel(matches) or bool(found)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids. Raises InvalidRequest for one that is not in the vocabulary."""
        if not all(0 <= token_id < self._ready.vocab_size for token_id in token_ids):
            raise InvalidRequest("tokens holds an id that is not in the vocabulary.", param="tokens")
        return self._processor.tokenizer.decode(token_ids)

    # -- requests -------------------------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> RequestStream:
        """Check, render and queue a request. Raises RequestError before anything is generated."""
        self._observers.request_received(request)
        self._check_capacity(request)
        prompt = await self.render(request)
        settings, params = self.settings, request.sampling
        vocab_size = self._ready.vocab_size
        if request.n < 1:
            raise InvalidRequest(f"n must be at least 1, not {request.n}.", param="n")
        try:
            token_ids = array("i", prompt.token_ids).tolist()  # a copy: the caller's list may change
        except (TypeError, OverflowError) as error:
            raise InvalidRequest("The prompt holds something that is no token id.", param="prompt") from error
        if not token_ids:
            raise InvalidRequest("The prompt is empty.", param="prompt")
        if min(token_ids) < 0 or max(token_ids) >= vocab_size:
            raise InvalidRequest("The prompt holds a token id that is not in the vocabulary.", param="prompt")
        limit = settings.max_request_tokens
        if limit is not None and params.max_tokens is not None and params.max_tokens > limit:
            raise InvalidRequest(f"At most {limit} tokens may be asked for.", param="max_tokens")
        with naming_the_prompt(request):
            max_tokens = output_budget(
                params,
                default=settings.sampling_defaults.max_tokens or limit,
                prompt_tokens=len(token_ids),
                context_length=self.info.context_length,
            )
        parsing = RequestParsing(
            request,
            prompt,
            self._processor.tokenizer,
            settings,
            tool_parser=self._tool_parser,
            reasoning_parser=self._reasoning_parser,
        )
        if request.call_required and not parsing.may_call:
            raise InvalidRequest("tool_choice demands a call, which this model cannot make here.", param="tool_choice")
        stops = () if params.ignore_eos else (*self._processor.stop_token_ids, *parsing.stop_token_ids)
        submits = [
            Submit(
                sequence_id=next(self._sequence_ids),
                request_id=request.request_id,
                prompt=token_ids,
                max_tokens=max_tokens,
                min_tokens=min(params.min_tokens, max_tokens),
                stop_token_ids=(*stops, *params.stop_token_ids),
                sampling=resolve(
                    params,
                    settings.sampling_defaults,
                    self._processor.defaults,
                    vocab_size=vocab_size,
                    choice=choice,
                ),
                priority=request.priority,
                boundaries=prompt.boundaries,
                cache_ids=prompt.cache_ids,
                user=request.user or "",
                salt=cache_salt(request, settings),
                expected=request.expected,
            )
            for choice in range(request.n)
        ]
        # No await from here on: the request is either refused or registered and queued. The loop comes first, so that
        # an engine that ends meanwhile is either seen here or can tell us.
        self._bind_loop()
        self._check_capacity(request)
        stream = RequestStream(
            request,
            self.info.id,
            len(prompt.token_ids),
            {s.sequence_id: parsing.pipeline(i) for i, s in enumerate(submits)},
            max_tokens=max_tokens,
            abort=self._abort,
            on_end=self._on_stream_end,
        )
        timeout_s = settings.timeout_s if request.timeout_s is None else request.timeout_s
        stream.time_out_after(timeout_s, RequestTimedOut(f"The request took longer than {timeout_s:g} seconds."))
        for submit in submits:
            self._streams[submit.sequence_id] = stream
            self._engine.send(submit)
        return stream

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Render and tokenise a request's prompt. Raises InvalidRequest, RequestCancelled."""
        return await self._prompts.render(request)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _bind_loop(self) -> None:
        """Take the running loop for the one to call back on. Raises RuntimeError if another one has requests here."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._streams and self._loop is not None and not self._loop.is_closed():
            raise RuntimeError("Requests to this model run on another event loop.")
        if self._streams:  # their loop is closed: nobody can read them any more
            self._abort(tuple(self._streams))
        self._loop = loop

    def _check_alive(self) -> None:
        if self._broken is not None:
            raise self._broken
        if not self._engine.is_alive:
            raise EngineFailed(BROKEN)

    def _check_capacity(self, request: GenerateRequest) -> None:
        """Raise Overloaded if there is no place. What is idle takes none from those that somebody waits for."""
        self._check_alive()
        engine, streams = self.settings.engine, self._streams.values()
        is_idle = request.priority >= IDLE_PRIORITY
        taken = len(streams) if is_idle else sum(stream.priority < IDLE_PRIORITY for stream in streams)
        if taken + request.n > engine.max_num_seqs + engine.max_queue:
            raise Overloaded("The server's queue is full. Try again later.", retry_after_s=RETRY_AFTER_S)

    def _abort(self, sequence_ids: Sequence[int]) -> None:
        self._forget(sequence_ids)
        self._engine.send(Abort(tuple(sequence_ids)))

    def _forget(self, sequence_ids: Sequence[int]) -> None:
        for sequence_id in sequence_ids:
            self._streams.pop(sequence_id, None)

    def _on_stream_end(self, stream: RequestStream) -> None:
        self._forget(stream.sequence_ids)
        summary = stream.summary()
        self._num_invalid_calls += summary.invalid_tool_calls
        self._num_requests += 1
        self._prompt_tokens += summary.usage.prompt_tokens
        self._completion_tokens += summary.usage.completion_tokens
        self._observers.request_finished(summary)

    # -- called on the engine thread ------------------------------------------------------------------------------

    def _on_step(self, step: StepResult) -> None:
        self._call_on_loop(self._deliver, step)

    def _on_end(self, error: BaseException | None) -> None:
        self._broken = EngineFailed(BROKEN if error else STOPPED)
        self._call_on_loop(self._fail_all)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(call, *args)

    # -- back on the event loop -----------------------------------------------------------------------------------

    def _deliver(self, step: StepResult) -> None:
        """Hand one step's updates to their requests and flush those that are due."""
        self._last_step = step
        now = asyncio.get_running_loop().time()
        streams = self._streams
        for sequence_id in step.admitted:
            if (waiting := streams.get(sequence_id)) is not None:
                waiting.admit()
        for report in step.reports:
            query = self._queries.get(report.query_id)
            if query is not None and not query.done():
                query.set_result(report)
        due = []
        for update in step.updates:
            stream = streams.get(update.sequence_id)
            if stream is None:
                continue  # aborted while the step ran
            if update.finish is not None:
                self._forget((update.sequence_id,))
            if stream.take(update, now):
                due.append(stream)
            else:
                self._late.add(stream)
        for stream in due:
            self._flush(stream, now)
        if self._late and self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_at(now + FLUSH_S, self._flush_late)
        if self._observers.step_finished is not None:
            self._observers.step_finished(
                StepStats(
                    model=self.info.id,
                    running=step.running,
                    waiting=step.waiting,
                    prefilled_tokens=step.prefilled_tokens,
                    generated_tokens=step.generated_tokens,
                    step_s=step.step_s,
                )
            )

    def _flush_late(self) -> None:
        """Flush the streams that were not due when their last tokens came."""
        self._flush_timer = None
        late, self._late = self._late, set()
        now = asyncio.get_running_loop().time()
        for stream in late:
            self._flush(stream, now)

    def _flush(self, stream: RequestStream, now: float) -> None:
        self._late.discard(stream)
        try:
            stream.flush(now)
        except Exception:  # it must not cost the others their tokens
            log.exception("The output of request %s could not be read", stream.request_id)
            stream.fail(EngineFailed("The model's output could not be turned into text."))

    def _fail_all(self) -> None:
        error = self._broken or EngineFailed(BROKEN)
        for stream in set(self._streams.values()):
            stream.fail(error)
        for query in self._queries.values():
            if not query.done():
                query.set_exception(error)
