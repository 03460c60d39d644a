from __future__ import annotations

import asyncio
import threading

import pytest

from vllm_mlx_core.api import ContextLengthExceeded, GenerateRequest, RenderedPrompt, RequestCancelled, Settings
from vllm_mlx_core.engine.prompts import RENDER_INLINE_CHARS, PromptRenderer

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Processor:
    """Tokenises when it may."""

    context_length = 10

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def tokenize(self, text):
        self.begun.set()
        assert self.go.wait(30)
        return RenderedPrompt(text=text, token_ids=[1])


@pytest.fixture
def processor():
    return Processor()


def wanted(text):
    return GenerateRequest(request_id="r", model="m", prompt=text)


async def test_who_waits_for_a_long_prompt_can_give_up(processor):
    renderer = PromptRenderer(processor, Settings())
    long = asyncio.create_task(renderer.render(wanted("x" * (RENDER_INLINE_CHARS + 1))))
    await asyncio.to_thread(processor.begun.wait, 30)
    assert not renderer.cancel(lambda request: request.request_id == "other")
    assert renderer.cancel(lambda request: request.request_id == "r")
    with pytest.raises(RequestCancelled):
        await long
    assert not renderer.cancel(lambda request: True)
    processor.go.set()


async def test_others_go_on_while_a_long_prompt_is_read(processor):
    renderer = PromptRenderer(processor, Settings())
    long = asyncio.create_task(renderer.render(wanted("x" * (RENDER_INLINE_CHARS + 1))))
    await asyncio.to_thread(processor.begun.wait, 30)
    assert (await renderer.render(wanted([5]))).token_ids == [5]
    processor.go.set()
    assert (await long).token_ids == [1]


async def test_a_prompt_that_is_too_long_is_named_as_it_was_sent(processor, monkeypatch):
    def refuse(text):
        raise ContextLengthExceeded("Too long.")

    monkeypatch.setattr(processor, "tokenize", refuse)
    with pytest.raises(ContextLengthExceeded) as refused:
        await PromptRenderer(processor, Settings()).render(wanted("x"))
    assert refused.value.param == "prompt"
