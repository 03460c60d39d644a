"""From what a client sent to the tokens that a model reads. Event-loop thread, but for long prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vllm_mlx_core.api import (
    Chat,
    ContextLengthExceeded,
    GenerateRequest,
    Infill,
    InvalidRequest,
    RenderedPrompt,
    RequestCancelled,
    Settings,
    TextProcessor,
    encode_prompt,
)

RENDER_INLINE_CHARS = 16_384
"""Longer prompts are rendered and tokenised in a worker thread, so that running streams do not wait for them."""


@contextmanager
def naming_the_prompt(request: GenerateRequest) -> Iterator[None]:
    """Say of a prompt that is too long in which field it came."""
    try:
        yield
    except ContextLengthExceeded as error:
        error.param = "messages" if isinstance(request.prompt, Chat) else "prompt"
        raise


class PromptRenderer:
    """Renders and tokenises prompts with one model's text half. Who waits for a long one can be told to give up."""

    def __init__(self, processor: TextProcessor, settings: Settings) -> None:
        self._processor = processor
        self._settings = settings
        self._waiting: dict[asyncio.Future[None], GenerateRequest] = {}

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Return the prompt of a request. Raises InvalidRequest, and RequestCancelled after ``cancel``."""
        with naming_the_prompt(request):
            return await self._render(request)

    async def _render(self, request: GenerateRequest) -> RenderedPrompt:
        prompt = request.prompt
        if isinstance(prompt, str):
            tokenize = self._processor.tokenize if request.add_special_tokens else self._tokenize_bare
            return await self._off_loop(request, len(prompt), tokenize, prompt)
        if isinstance(prompt, Infill):
            return await self._off_loop(request, len(prompt.prefix) + len(prompt.suffix), self._infill, prompt)
        if isinstance(prompt, Chat):
            size = sum(_size(message.get("content")) for message in prompt.messages)
            return await self._off_loop(request, size, self._processor.render, self._with_defaults(prompt))
        return RenderedPrompt(text="", token_ids=prompt)

    def cancel(self, matches: Callable[[GenerateRequest], bool]) -> bool:
        """Fail the requests that match and whose prompts are being rendered; return whether there were any."""
        found = [waiting for waiting, request in self._waiting.items() if matches(request) and not waiting.done()]
        for waiting in found:
            waiting.set_result(None)
        return bool(found)

    def _with_defaults(self, chat: Chat) -> Chat:
        defaults = self._settings.template_kwargs
        if not defaults:
            return chat
        return Chat(
            messages=chat.messages,
            tools=chat.tools,
            template_kwargs={**defaults, **chat.template_kwargs},
            add_generation_prompt=chat.add_generation_prompt,
            continue_final_message=chat.continue_final_message,
        )

    def _tokenize_bare(self, text: str) -> RenderedPrompt:
        processor = self._processor
        ids = encode_prompt(processor.tokenizer, text, context_length=processor.context_length)
        return RenderedPrompt(text=text, token_ids=ids)

    def _infill(self, gap: Infill) -> RenderedPrompt:
        infill = getattr(self._processor, "infill", None)
        rendered: RenderedPrompt | None = infill(gap) if infill is not None else None
        if rendered is None:
            raise InvalidRequest("suffix is not supported: this model has no form for filling gaps.", param="suffix")
        return rendered

    async def _off_loop(
        self, request: GenerateRequest, size: int, render: Callable[[Any], RenderedPrompt], prompt: object
    ) -> RenderedPrompt:
        if size <= RENDER_INLINE_CHARS:
            return render(prompt)
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[cancelled] = request
        work = asyncio.create_task(asyncio.to_thread(render, prompt))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look at it
        try:
            await asyncio.wait((work, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if cancelled.done():
                raise RequestCancelled("The request was cancelled.", code="cancelled")
            return work.result()
        finally:
            del self._waiting[cancelled]


def _size(content: object) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, list):
        return sum(len(str(part.get("text") or "")) for part in content if isinstance(part, dict))
    return 0
