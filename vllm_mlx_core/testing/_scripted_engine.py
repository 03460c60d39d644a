"""An engine without a model, which replies as it is told."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vllm_mlx_core.api import (
    ActiveRequest,
    CacheStats,
    Chat,
    Event,
    FinishReason,
    GenerateRequest,
    Infill,
    InvalidRequest,
    ModelInfo,
    ModelStats,
    NotFound,
    Output,
    RenderedPrompt,
    RequestCancelled,
    RequestError,
    TextDelta,
    Usage,
)

Step: TypeAlias = Sequence[Output] | RequestError | asyncio.Event
"""What one engine step does: adds outputs, fails the request, or waits until the event is set."""
Reply: TypeAlias = Iterable[Step]


def text_reply(text: str, *, finish: FinishReason = "stop", prompt_tokens: int = 3) -> list[Step]:
    """Return a reply of one character per step, each of them one token, and then the finish."""
    steps: list[Step] = [[Output(choice=0, events=[TextDelta(each)], token_ids=[ord(each)])] for each in text]
    return [*steps, end(finish, completion_tokens=len(text) + 1, prompt_tokens=prompt_tokens)]


def events_reply(*events: Event, finish: FinishReason = "stop", prompt_tokens: int = 3) -> list[Step]:
    """Return a reply of one event per step, and then the finish."""
    steps: list[Step] = [[Output(choice=0, events=[event], token_ids=[0])] for event in events]
    return [*steps, end(finish, completion_tokens=len(events) + 1, prompt_tokens=prompt_tokens)]


def end(finish: FinishReason = "stop", *, completion_tokens: int = 1, prompt_tokens: int = 3) -> list[Output]:
    """Return the step that ends a completion."""
    usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    return [Output(choice=0, finish=finish, usage=usage)]


class ScriptedStream:
    """One request's outputs (an ``api.OutputStream``); remembers how far it got and whether it was closed."""

    def __init__(self, steps: Reply, n: int, prompt_tokens: int) -> None:
        self._steps = steps
        self._n = n
        self.prompt_tokens = prompt_tokens
        self.steps_taken = 0
        self.cancelled = False
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over the script; between two steps others get a turn, as with a real engine."""
        for step in self._steps:
            await asyncio.sleep(0)
            if self.closed.is_set():
                return
            if self.cancelled:
                raise RequestCancelled("The request was cancelled.")
            self.steps_taken += 1
            if isinstance(step, RequestError):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield self._for_every_choice(step)

    async def aclose(self) -> None:
        """Note that the front-end is done with it."""
        self.closed.set()

    def _for_every_choice(self, outputs: Sequence[Output]) -> Sequence[Output]:
        if self._n == 1 or any(output.choice for output in outputs):
            return outputs
        return [msgspec.structs.replace(output, choice=choice) for choice in range(self._n) for output in outputs]


class ScriptedEngine:
    """An ``api.EngineClient`` without a model: it replies with given outputs and remembers what it was asked.

    ``reply`` is a script or makes one from the request; it may raise RequestError, which refuses the request. A script
    that only speaks of choice 0 is repeated for every completion. Outputs are the engine's side of the contract: a
    script that breaks it tests nothing.
    """

    def __init__(
        self,
        reply: Reply | Callable[[GenerateRequest], Reply] = (),
        *,
        models: Sequence[str] = ("scripted/model",),
        prompt_tokens: int = 3,
    ) -> None:
        self.reply = reply
        self.requests: list[GenerateRequest] = []
        self.streams: list[ScriptedStream] = []
        self.status = "ok"
        self.prompt_tokens = prompt_tokens
        self._models = [ModelInfo(id=name, created=1_700_000_000, context_length=4096, family="s") for name in models]

    def models(self) -> Sequence[ModelInfo]:
        """Return the models it pretends to serve."""
        return self._models

    def model(self, name: str) -> ModelInfo:
        """Return one of them; the first is also called "default". Raises NotFound."""
        for info in self._models:
            if name == info.id:
                return info
        if name == "default":
            return self._models[0]
        raise NotFound("There is no such model.")

    async def generate(self, request: GenerateRequest) -> ScriptedStream:
        """Start the script."""
        self.requests.append(request)
        steps = self.reply(request) if callable(self.reply) else self.reply
        stream = ScriptedStream(steps, request.n, self.prompt_tokens)
        self.streams.append(stream)
        return stream

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Render the texts of the prompt, one line each, one token per character."""
        prompt = request.prompt
        if isinstance(prompt, Chat):
            prompt = "\n".join(str(message.get("content") or "") for message in prompt.messages)
        elif isinstance(prompt, Infill):
            prompt = prompt.prefix + prompt.suffix
        if isinstance(prompt, str):
            return RenderedPrompt(text=prompt, token_ids=[ord(each) for each in prompt])
        return RenderedPrompt(text="", token_ids=prompt)

    def detokenize(self, model: str, token_ids: Sequence[int]) -> str:
        """Return one character per token id. Raises as the real one does."""
        self.model(model)
        if not all(0 <= token_id <= sys.maxunicode for token_id in token_ids):
            raise InvalidRequest("There is a token id that is not in the vocabulary.", param="tokens")
        return "".join(map(chr, token_ids))

    def active_requests(self) -> Sequence[ActiveRequest]:
        """Return the requests whose outputs have not been closed."""
        return [
            ActiveRequest(
                request_id=request.request_id,
                trace_id=request.trace_id,
                model=request.model,
                user=request.user,
                phase="generation",
                n=request.n,
                prompt_tokens=stream.prompt_tokens,
                cached_tokens=0,
                generated_tokens=stream.steps_taken,
                max_tokens=request.sampling.max_tokens or 4096,
                age_s=0.0,
                first_token_s=None,
            )
            for request, stream in zip(self.requests, self.streams, strict=False)
            if not stream.closed.is_set()
        ]

    def cancel(self, request_id: str, *, user: str | None = None) -> bool:
        """End the scripts of such requests after the step they are at."""
        found = False
        for request, stream in zip(self.requests, self.streams, strict=False):
            named = request_id in (request.request_id, request.trace_id)
            if named and user in (None, request.user) and not stream.closed.is_set():
                stream.cancelled = found = True
        return found

    async def stats(self) -> Sequence[ModelStats]:
        """Return what an engine that has done nothing would say."""
        return [
            ModelStats(
                model=info.id,
                uptime_s=1.0,
                steps=0,
                running=0,
                waiting=0,
                requests=0,
                prompt_tokens=0,
                completion_tokens=0,
                cache_policy="radix",
                cache=CacheStats(),
                cache_max_bytes=None,
                weights_bytes=0,
                active_memory_bytes=0,
                peak_memory_bytes=0,
                buffer_memory_bytes=0,
            )
            for info in self._models
        ]

    async def clear_cache(self) -> Mapping[str, int]:
        """Free nothing, as nothing is kept."""
        return {info.id: 0 for info in self._models}

    def health(self) -> Mapping[str, Any]:
        """Return ``status``."""
        return {"status": self.status, "models": {info.id: {} for info in self._models}}
