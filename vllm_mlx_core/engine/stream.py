"""One request's way back: engine updates in, parsed outputs out, at most one wake-up of its reader per step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, TypeAlias

from vllm_mlx_core.api import (
    ActiveRequest,
    EngineFailed,
    GenerateRequest,
    InsufficientMemory,
    InvalidRequest,
    Output,
    RequestCancelled,
    RequestError,
    RequestSummary,
    Usage,
)

from .messages import SequenceUpdate
from .pipeline import CompletionPipeline

Phase: TypeAlias = Literal["queued", "prefill", "generation"]
FLUSH_S = 1 / 60
"""Shortest time between two flushes of one stream, in seconds: a screen shows no more."""
RETRY_AFTER_S = 5
"""When a client that found no place should ask again."""


class RequestStream:
    """The outputs of one request (``api.OutputStream``). Event-loop thread only.

    ``pipelines`` maps sequence ids to completions. ``abort`` is called with the ids of sequences that need not go on,
    ``on_end`` exactly once, when the request has finished, failed or been closed.
    """

    def __init__(
        self,
        request: GenerateRequest,
        model: str,
        prompt_tokens: int,
        pipelines: dict[int, CompletionPipeline],
        *,
        max_tokens: int,
        abort: Callable[[Sequence[int]], None],
        on_end: Callable[[RequestStream], None],
    ) -> None:
        self.request_id = request.request_id
        self.trace_id = request.trace_id
        self.user = request.user
        self.priority = request.priority
        self.prompt_tokens = prompt_tokens
        self._call_required = request.call_required
        self._model = model
        self._max_tokens = max_tokens
        self._open = dict(pipelines)
        self._pipelines = tuple(pipelines.values())
        self.sequence_ids = tuple(pipelines)
        self._abort = abort
        self._on_end = on_end
        self._held: list[SequenceUpdate] = []
        self._flush_due = 0.0
        self._outputs: list[Output] = []
        self._error: RequestError | None = None
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._usages: list[Usage] = []
        self._finish_reasons: list[str] = []
        self._started_at = time.monotonic()
        self._queued_until: float | None = None
        self._first_token_at: float | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # -- the engine's side ----------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Note that a completion got a place in the engine."""
        if self._queued_until is None:
            self._queued_until = time.monotonic()

    def take(self, update: SequenceUpdate, now: float) -> bool:
        """Hold what one step added, and return whether it should be flushed at once (``now``: the loop's clock).

        A first token, an end and whatever comes ``FLUSH_S`` after the last flush should; the rest may wait until then,
        so that a fast model's tokens are parsed, encoded and sent several at a time.
        """
        self._held.append(update)
        return update.finish is not None or now >= self._flush_due

    def flush(self, now: float) -> None:
        """Turn what is held into outputs and wake the reader. Raises what a tokenizer raises."""
        held, self._held = self._held, []
        for update in held if len(held) == 1 else _merged(held):
            self._push(update)
        if self._outputs:  # half a character is not worth a wait
            self._flush_due = now + FLUSH_S
        self._wake()

    def _push(self, update: SequenceUpdate) -> None:
        pipeline = self._open.get(update.sequence_id)
        if pipeline is None:
            return
        if update.finish == "error":
            message = update.error or "The engine failed."
            if update.lacks_memory is None:
                self.fail(EngineFailed(message))
            else:
                retry_after_s = RETRY_AFTER_S if update.lacks_memory == "now" else None
                self.fail(InsufficientMemory(message, retry_after_s=retry_after_s))
            return
        if self._first_token_at is None and update.tokens:
            self._first_token_at = time.monotonic()
        finish = update.finish
        output = pipeline.push(update.tokens, update.logprobs, finish, update.cached_tokens, update.prompt_logprobs)
        if self._call_required and output is not None and output.finish == "stop":
            self.fail(
                InvalidRequest(
                    "The model answered without calling a tool, though tool_choice demands a call.", param="tool_choice"
                )
            )
            return
        if output is not None:
            self._outputs.append(output)
        if pipeline.done:
            del self._open[update.sequence_id]
            if finish is None:
                self._abort((update.sequence_id,))
            if output is not None and output.finish is not None and output.usage is not None:
                self._usages.append(output.usage)
                self._finish_reasons.append(output.finish)
            if not self._open:
                self._end()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done() and (self._outputs or self._ended):
            self._reader.set_result(None)

    def fail(self, error: RequestError) -> None:
        """End the request with an error, abort what still runs and wake the reader. No-op after the end."""
        if self._ended:
            return
        self._error = error
        if self._open:
            self._abort(tuple(self._open))
            self._open.clear()
        self._end()
        self._wake()

    def time_out_after(self, seconds: float, error: RequestError) -> None:
        """Fail the request if it has not ended by then."""
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.fail, error)

    # -- the front-end's side -------------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over what each engine step added; raises the RequestError the request failed with."""
        while True:
            if self._outputs:
                outputs, self._outputs = self._outputs, []
                yield outputs
            elif self._error is not None:
                raise self._error
            elif self._ended:
                return
            else:
                self._reader = asyncio.get_running_loop().create_future()
                try:
                    await self._reader
                finally:
                    self._reader = None

    async def aclose(self) -> None:
        """Abort whatever still runs, and end an iteration that waits. Safe at any time, more than once."""
        self.fail(RequestCancelled("The request was cancelled."))

    @property
    def num_invalid_calls(self) -> int:
        """How many tool calls so far did not fit their tool's schema."""
        return sum(pipeline.num_invalid_calls for pipeline in self._pipelines)

    def describe(self) -> ActiveRequest:
        """Return how far the request is."""
        first, started = self._first_token_at, self._started_at
        if first is not None:
            phase: Phase = "generation"
        else:
            phase = "queued" if self._queued_until is None else "prefill"
        return ActiveRequest(
            request_id=self.request_id,
            trace_id=self.trace_id,
            model=self._model,
            user=self.user,
            phase=phase,
            n=len(self._pipelines),
            prompt_tokens=self.prompt_tokens,
            cached_tokens=max(pipeline.cached_tokens for pipeline in self._pipelines),
            generated_tokens=sum(pipeline.num_tokens for pipeline in self._pipelines),
            max_tokens=self._max_tokens,
            age_s=time.monotonic() - started,
            first_token_s=None if first is None else first - started,
        )

    def summary(self) -> RequestSummary:
        """Return how the request went. Call it from ``on_end`` or later."""
        now = time.monotonic()
        first = self._first_token_at
        return RequestSummary(
            request_id=self.request_id,
            model=self._model,
            user=self.user,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=sum(u.completion_tokens for u in self._usages),
                cached_tokens=max((u.cached_tokens for u in self._usages), default=0),
                reasoning_tokens=sum(u.reasoning_tokens for u in self._usages),
            ),
            finish_reasons=tuple(self._finish_reasons),
            first_token_s=None if first is None else first - self._started_at,
            total_s=now - self._started_at,
            invalid_tool_calls=self.num_invalid_calls,
            queued_s=None if self._queued_until is None else self._queued_until - self._started_at,
            trace_id=self.trace_id,
            error=None if self._error is None else type(self._error).__name__,
        )

    def _end(self) -> None:
        self._ended = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._on_end(self)


def _merged(updates: Sequence[SequenceUpdate]) -> list[SequenceUpdate]:
    """Return one update for each sequence that says what several in a row said."""
    by_sequence: dict[int, list[SequenceUpdate]] = {}
    for update in updates:
        by_sequence.setdefault(update.sequence_id, []).append(update)
    merged = []
    for sequence_id, parts in by_sequence.items():
        last = parts[-1]
        if last.finish == "error":
            merged += parts  # what came before the error is still delivered
            continue
        merged.append(
            SequenceUpdate(
                sequence_id,
                [token for part in parts for token in part.tokens],
                [entry for part in parts for entry in part.logprobs],
                last.finish,
                last.cached_tokens,
                prompt_logprobs=parts[0].prompt_logprobs,
            )
        )
    return merged
