"""A failing, cancelled or malformed request never touches its neighbours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    IDLE_PRIORITY,
    Completion,
    ContextLengthExceeded,
    EngineFailed,
    EngineSettings,
    GenerateRequest,
    InvalidRequest,
    Overloaded,
    RequestError,
    RequestTimedOut,
    SamplingParams,
    Settings,
)

pytestmark = pytest.mark.anyio

FAULTY = str(Path(__file__).parent / "plugins" / "faulty.py")
BROKEN_CACHE = str(Path(__file__).parent / "plugins" / "broken_cache.py")
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


@pytest.mark.parametrize("bad", ["abc☠def", "abcdefgh☢xyz", "☠", "⚡ at once", "abc✂def", "abc⇤def"])
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
        ([40], SamplingParams(repetition_penalty=1e-10), "repetition_penalty"),
        ([40], SamplingParams(presence_penalty=float("nan")), "presence_penalty"),
        ([40], SamplingParams(temperature=float("inf")), "temperature"),
        ([40], SamplingParams(logit_bias={4: float("inf")}), "logit_bias"),
        ([40], SamplingParams(max_tokens=0), "max_tokens"),
        ([40], SamplingParams(max_tokens=-1), "max_tokens"),
        ([40.0], SamplingParams(), "prompt"),
        (["a"], SamplingParams(), "prompt"),
        ([2**40], SamplingParams(), "prompt"),
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


async def test_what_is_idle_takes_no_place_from_those_who_are_waited_for(until_idle):
    narrow = settings(max_num_seqs=1, max_queue=1)
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=narrow) as engine:
        client = engine.loaded.client

        def ask(priority):
            return client.generate(
                GenerateRequest(request_id="r", model="default", prompt="x" * 50_000, priority=priority)
            )

        streams = [await ask(IDLE_PRIORITY), await ask(IDLE_PRIORITY)]
        with pytest.raises(Overloaded):
            await ask(IDLE_PRIORITY)
        streams += [await ask(0), await ask(0)]
        for priority in (0, IDLE_PRIORITY):
            with pytest.raises(Overloaded):
                await ask(priority)
        for stream in streams:
            await stream.aclose()
        await until_idle(engine)


async def test_a_request_may_have_a_time_of_its_own(until_idle):
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=settings()) as engine:
        wanted = GenerateRequest(request_id="hasty", model="default", prompt="x" * 100_000, timeout_s=0.2)
        outputs = await engine.loaded.client.generate(wanted)
        with pytest.raises(RequestTimedOut, match=r"0\.2 seconds"):
            async for _ in outputs:
                pass
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


@pytest.mark.parametrize("n", [0, -1])
async def test_a_request_for_no_completion_is_refused(scripted, n):
    with pytest.raises(InvalidRequest) as caught:
        await anext(scripted.outputs(chat("x"), n=n))
    assert caught.value.param == "n"


async def test_a_prompt_that_its_owner_changes_afterwards_is_read_as_it_was(tiny_model):
    async with AsyncEngine(tiny_model("qwen3"), settings=settings(max_num_batched_tokens=8)) as engine:
        sampling = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
        expected = (await engine.generate([5] * 60, sampling)).token_ids
        prompt = [5] * 60
        outputs = engine.outputs(prompt, sampling)
        first = asyncio.ensure_future(anext(outputs))
        await asyncio.sleep(0)
        prompt[:] = [9] * 60
        tokens = list((await first).token_ids)
        async for output in outputs:
            tokens += output.token_ids
        assert tokens == expected


async def test_a_step_whose_result_cannot_be_read_costs_no_one_who_joined_after_it(monkeypatch, until_idle):
    """A launched step fails only when it is read; by then others may have joined the batch."""
    from vllm_mlx_core.engine.sampler import Sampled

    read = Sampled.read
    failures = iter(range(3, 1000, 7))
    calls, next_failure = 0, next(failures)

    def fails_now_and_then(self):
        nonlocal calls, next_failure
        calls += 1
        if calls == next_failure and len(self.tokens) > 1:
            next_failure = next(failures)
            raise RuntimeError("the device lost it")
        next_failure = max(next_failure, calls + 1)
        return read(self)

    monkeypatch.setattr(Sampled, "read", fails_now_and_then)
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=settings(max_num_batched_tokens=16)) as engine:
        texts = [f"text {i} " * (i % 4 + 1) for i in range(20)]

        async def later(turns: int, text: str) -> str:
            for _ in range(turns):
                await asyncio.sleep(0.001)
            return (await engine.generate(chat(text))).text

        async with asyncio.timeout(60):
            assert await asyncio.gather(*(later(i, text) for i, text in enumerate(texts))) == texts
        assert next_failure > 3, "a step did fail"
        await until_idle(engine)


@pytest.mark.parametrize("where", ["match", "state", "whole", "insert", "release", "clear", "check", "close"])
async def test_a_cache_policy_that_breaks_costs_reuse_but_no_answer(where, tiny_model, until_idle):
    sampling = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
    prompts = [[p % 180 + 3 for p in range(length)] for length in (40, 40, 50, 1, 30, 40)]
    async with AsyncEngine(tiny_model("mamba2"), settings=settings(cache="off")) as engine:
        expected = [(await engine.generate(prompt, sampling)).token_ids for prompt in prompts]
    broken = settings(cache=f"broken:where={where}")
    async with AsyncEngine(tiny_model("mamba2"), plugins=[BROKEN_CACHE], settings=broken) as engine:
        client = engine.loaded.client
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert (await engine.generate(prompt, sampling)).token_ids == tokens
        answers = await asyncio.gather(*(engine.generate(prompt, sampling) for prompt in prompts))
        assert [each.token_ids for each in answers] == expected
        await until_idle(engine)
        running = asyncio.ensure_future(engine.generate(prompts[0], SamplingParams(max_tokens=3000, ignore_eos=True)))
        await asyncio.sleep(0.02)
    with pytest.raises(EngineFailed):
        await running
    assert client.health()["status"] == "error"


async def test_output_that_cannot_be_turned_into_text_fails_its_own_request_only(scripted, monkeypatch):
    from vllm_mlx_core.engine.pipeline import CompletionPipeline

    push = CompletionPipeline.push

    def fails_on_bang(self, tokens, *rest):
        if "!" in scripted.loaded.client._processor.tokenizer.decode(list(tokens)):
            raise RuntimeError("cannot detokenize")
        return push(self, tokens, *rest)

    monkeypatch.setattr(CompletionPipeline, "push", fails_on_bang)
    texts = ["all is well here", "ba!d"]
    answers = await asyncio.gather(*(scripted.generate(chat(text)) for text in texts), return_exceptions=True)
    assert isinstance(answers[1], EngineFailed)
    assert isinstance(answers[0], Completion)
    assert answers[0].text == "all is well here"


async def test_closing_a_stream_ends_whoever_iterates_over_it(scripted):
    from vllm_mlx_core.api import Chat, GenerateRequest, RequestCancelled

    prompt = Chat(messages=chat("x" * 20_000))
    stream = await scripted.loaded.client.generate(GenerateRequest(request_id="r", model="scripted", prompt=prompt))

    async def read_on() -> None:
        async for _ in stream:
            pass

    reader = asyncio.ensure_future(read_on())
    await asyncio.sleep(0.02)
    await stream.aclose()
    with pytest.raises(RequestCancelled):
        await asyncio.wait_for(reader, 10)


async def test_a_parser_that_cannot_be_made_is_left_out(tmp_path):
    plugin = tmp_path / "unmakeable.py"
    plugin.write_text(
        "from vllm_mlx_core.api import ReasoningParser, hookimpl\n"
        "class Unmakeable(ReasoningParser):\n"
        "    def __init__(self, context): raise RuntimeError('never')\n"
        "    def feed(self, chunk): return ()\n"
        "    def finish(self): return ()\n"
        "@hookimpl\n"
        "def vllm_mlx_register(registrar): registrar.add('reasoning_parsers', 'unmakeable', Unmakeable)\n"
    )
    chosen = Settings(reasoning_parser="unmakeable")
    async with AsyncEngine("scripted", plugins=[SCRIPTED, str(plugin)], settings=chosen) as engine:
        assert (await engine.generate(chat("as it is"))).text == "as it is"
