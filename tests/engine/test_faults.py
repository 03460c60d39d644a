"""A failing, cancelled or malformed request never touches its neighbours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    ContextLengthExceeded,
    EngineFailed,
    EngineSettings,
    InvalidRequest,
    Overloaded,
    RequestError,
    RequestTimedOut,
    SamplingParams,
    Settings,
)

pytestmark = pytest.mark.anyio

FAULTY = str(Path(__file__).parent / "plugins" / "faulty.py")
SCRIPTED = "vllm_mlx_core.testing.scripted"
INNOCENT = ["The quick brown fox", "jumps over", "the lazy dog and runs away from here", "日本語 👩‍👩‍👧 é"]


def settings(**engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(**engine))


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture
async def faulty():
    async with AsyncEngine("scripted", plugins=[SCRIPTED, FAULTY], settings=settings()) as engine:
        yield engine


@pytest.mark.parametrize("bad", ["abc☠def", "abcdefgh☢xyz", "☠", "⚡ at once"])
async def test_a_fault_in_one_row_leaves_the_others_text_unchanged(faulty, bad, until_idle):
    async def guilty() -> str:
        with pytest.raises(EngineFailed) as caught:
            await faulty.generate(chat(bad))
        return caught.value.message

    message, *texts = await asyncio.gather(guilty(), *(faulty.generate(chat(text)) for text in INNOCENT))
    assert [each.text for each in texts] == INNOCENT
    assert "Traceback" not in message
    assert "broke" not in message
    await until_idle(faulty)
    assert (await faulty.generate(chat("still here"))).text == "still here"


async def test_a_fault_that_passes_costs_nobody_anything(faulty):
    texts = [*INNOCENT, "wait ⌛ for it"]
    answers = await asyncio.gather(*(faulty.generate(chat(text)) for text in texts))
    assert [each.text for each in answers] == texts


async def test_many_faults_in_a_row_do_not_wear_the_engine_out(faulty):
    for _ in range(5):
        bad = [asyncio.ensure_future(faulty.generate(chat(f"{i}☠"))) for i in range(4)]
        assert (await faulty.generate(chat("fine"))).text == "fine"
        assert all(isinstance(each, EngineFailed) for each in await asyncio.gather(*bad, return_exceptions=True))


@pytest.fixture
async def scripted():
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=settings(max_num_seqs=2, max_queue=2)) as engine:
        yield engine


async def test_a_full_queue_refuses_with_a_time_to_come_back(scripted):
    running = [asyncio.ensure_future(scripted.generate(chat("x" * 400))) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded) as caught:
        await scripted.generate(chat("one too many"))
    assert caught.value.retry_after_s
    assert [each.text for each in await asyncio.gather(*running)] == ["x" * 400] * 4


async def test_a_request_can_be_cancelled_in_the_queue_in_prefill_and_in_decode(scripted, until_idle):
    async def cancelled_after(text: str, outputs: int) -> None:
        stream = scripted.outputs(chat(text))
        for _ in range(outputs):
            await anext(stream)
        await stream.aclose()

    async def never_read(text: str) -> None:
        task = asyncio.ensure_future(scripted.generate(chat(text)))
        await asyncio.sleep(0)  # submitted, not yet stepped
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    survivor = asyncio.ensure_future(scripted.generate(chat("survivor " * 40)))
    await cancelled_after("decoding " * 30, 3)  # decode
    await never_read("prefill " * 2000)  # prefill, in chunks
    other = asyncio.ensure_future(scripted.generate(chat("other " * 40)))
    await never_read("queue " * 10)  # both places are taken
    assert (await survivor).text == "survivor " * 40
    assert (await other).text == "other " * 40
    await until_idle(scripted)


@pytest.mark.parametrize(
    ("prompt", "sampling", "field"),
    [
        ([10**6], SamplingParams(), "prompt"),
        ([], SamplingParams(), "prompt"),
        ([40], SamplingParams(temperature=-1), "temperature"),
        ([40], SamplingParams(top_p=0), "top_p"),
        ([40], SamplingParams(logit_bias={10**7: 1.0}), "logit_bias"),
        ([40], SamplingParams(repetition_penalty=0), "repetition_penalty"),
    ],
)
async def test_a_malformed_request_is_refused_by_name_before_anything_runs(scripted, prompt, sampling, field):
    with pytest.raises(InvalidRequest) as caught:
        await scripted.generate(prompt, sampling)
    assert caught.value.param == field


async def test_a_prompt_beyond_the_context_is_refused_before_prefill():
    tight = settings(max_model_len=16)
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=tight) as engine:
        with pytest.raises(ContextLengthExceeded) as caught:
            await engine.generate(chat("x" * 40))
        assert caught.value.code == "context_length_exceeded"
        answer = await engine.generate(chat("12345678"), SamplingParams(max_tokens=1000))
        assert (answer.text, answer.finish_reason) == ("123456", "length"), "as many as there is room for"


async def test_a_request_that_takes_too_long_ends_and_is_freed(until_idle):
    slow = Settings(timeout_s=0.2)
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=slow) as engine:
        with pytest.raises(RequestTimedOut):
            await engine.generate(chat("x" * 100_000))
        await until_idle(engine)


async def test_closing_the_engine_fails_what_runs_and_leaves_nothing():
    engine = AsyncEngine("scripted", plugins=[SCRIPTED], settings=settings())
    await engine.start()
    running = asyncio.ensure_future(engine.generate(chat("x" * 50_000)))
    await asyncio.sleep(0.05)
    client = engine.loaded.client
    await engine.aclose()
    with pytest.raises(RequestError):
        await running
    assert client.health()["status"] == "error"
