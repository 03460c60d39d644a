"""What a front-end may ask of the served models beside an answer."""

from __future__ import annotations

import asyncio

import pytest

from vllm_mlx_core.api import (
    Chat,
    Completion,
    EngineFailed,
    GenerateRequest,
    Infill,
    InvalidRequest,
    LoadOptions,
    NotFound,
    RequestCancelled,
    SamplingParams,
    Settings,
    Tool,
)
from vllm_mlx_core.engine.client import ModelClient
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model
from vllm_mlx_core.residency.pool import ModelPool

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOL = Tool(name="f", parameters={"type": "object", "properties": {}})
TEXT = "a text that is long enough to be kept"


@pytest.fixture(scope="module")
def pool():
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    pool = ModelPool([load_model("scripted", host, Settings(tool_parser="hermes"), LoadOptions())])
    yield pool
    pool.close()


def request(text, *, request_id="r", tools=(), **fields):
    chat = Chat(messages=[{"role": "user", "content": text}], tools=tools)
    return GenerateRequest(request_id=request_id, model="default", prompt=chat, **fields)


async def answer(pool, wanted):
    outputs = await pool.generate(wanted)
    completion = Completion()
    try:
        async for step in outputs:
            for output in step:
                completion.add(output)
    finally:
        await outputs.aclose()
    return completion


async def exhaust(reading):
    async for _ in reading:
        pass


def never_ending(request_id, **fields):
    sampling = SamplingParams(ignore_eos=True, max_tokens=100_000, min_tokens=100_000)
    return request("x", request_id=request_id, sampling=sampling, **fields)


def test_a_request_is_listed_while_it_runs_and_can_be_cancelled_by_either_id(pool):
    async def main():
        for name in ("the-request", "the-trace"):
            outputs = await pool.generate(never_ending("the-request", trace_id="the-trace", user="alice"))
            reading = aiter(outputs)
            await anext(reading)
            (running,) = pool.active_requests()
            assert (running.request_id, running.trace_id, running.user) == ("the-request", "the-trace", "alice")
            assert running.phase == "generation"
            assert 0 < running.generated_tokens <= running.max_tokens
            assert running.prompt_tokens == outputs.prompt_tokens
            assert not pool.cancel(name, user="bob"), "it is somebody else's"
            assert pool.cancel(name, user="alice")
            with pytest.raises(RequestCancelled):
                await exhaust(reading)
            assert not pool.active_requests()
            assert not pool.cancel(name)
            await outputs.aclose()

    asyncio.run(main())


def test_the_engine_says_what_it_holds_and_lets_go_of_it(pool):
    async def main():
        before = (await pool.stats())[0]
        completion = await answer(pool, request(TEXT))
        (after,) = await pool.stats()
        assert after.requests == before.requests + 1
        assert after.completion_tokens == before.completion_tokens + completion.usage.completion_tokens
        assert after.steps > before.steps
        assert after.active_memory_bytes > 0
        assert after.cache is not None
        assert after.cache.nbytes > 0
        freed = await pool.clear_cache()
        assert freed == {after.model: after.cache.nbytes}
        (cleared,) = await pool.stats()
        assert cleared.cache is not None
        assert cleared.cache.entries == 0

    asyncio.run(main())


def test_every_output_says_what_came_from_the_cache_unless_salts_differ(pool):
    async def cached(**fields):
        outputs = await pool.generate(request(TEXT * 2, **fields))
        seen = {output.cached_tokens async for step in outputs for output in step}
        assert len(seen) == 1
        return seen.pop()

    async def main():
        await pool.clear_cache()
        assert await cached(cache_salt="one") == 0
        assert await cached(cache_salt="one") > 0
        assert await cached(cache_salt="two") == 0

    asyncio.run(main())


def test_a_call_that_is_demanded_must_come(pool):
    assert asyncio.run(answer(pool, request(CALL, tools=[TOOL], call_required=True))).finish_reason == "tool_calls"
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(answer(pool, request("no call", tools=[TOOL], call_required=True)))
    assert refused.value.param == "tool_choice"
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(answer(pool, request(CALL, call_required=True)))
    assert refused.value.param == "tool_choice"


def test_an_answer_that_the_limit_cuts_off_is_delivered_without_its_call(pool):
    short = SamplingParams(max_tokens=5)
    completion = asyncio.run(answer(pool, request(CALL, tools=[TOOL], call_required=True, sampling=short)))
    assert completion.finish_reason == "length"


def test_tokens_become_text_again(pool):
    async def main():
        wanted = GenerateRequest(request_id="r", model="default", prompt="Zürich 👋", add_special_tokens=False)
        return (await pool.render(wanted)).token_ids

    ids = asyncio.run(main())
    assert pool.detokenize("default", ids) == "Zürich 👋"
    with pytest.raises(InvalidRequest):
        pool.detokenize("default", [10**9])
    with pytest.raises(NotFound):
        pool.detokenize("nobody", ids)


def test_a_gap_is_refused_by_a_model_without_a_form_for_it(pool):
    gap = GenerateRequest(request_id="r", model="default", prompt=Infill(prefix="a", suffix="b"))
    with pytest.raises(InvalidRequest) as refused:
        asyncio.run(pool.generate(gap))
    assert refused.value.param == "suffix"
    assert pool.models()[0].capabilities["infill"] is False


def test_capabilities_say_what_the_model_can_do(pool):
    capabilities = pool.models()[0].capabilities
    assert capabilities["chat"] is True
    assert capabilities["tools"] is True
    assert capabilities["serving_mode"]


def test_questions_fail_when_the_engine_has_ended():
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    loaded = load_model("scripted", host, Settings(), LoadOptions())
    client: ModelClient = loaded.client
    client.close()
    with pytest.raises(EngineFailed):
        asyncio.run(client.stats())
