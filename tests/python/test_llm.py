"""The Python interface: the same engine without a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from vllm_mlx_core import LLM, AsyncEngine, SamplingParams
from vllm_mlx_core.api import (
    Completion,
    InvalidRequest,
    ModelNotFound,
    ReasoningDelta,
    RequestError,
    Settings,
    ToolCall,
)

SCRIPTED = "vllm_mlx_core.testing.scripted"


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def llm():
    with LLM("scripted", plugins=[SCRIPTED], settings=Settings(reasoning_parser="think", tool_parser="hermes")) as llm:
        yield llm


def test_many_prompts_come_back_in_their_order(llm):
    prompts = [f"text {i} " + "x" * (i % 7) for i in range(40)]
    assert [each.text for each in llm.generate(prompts)] == prompts


@pytest.mark.parametrize("prompt", [user("hello"), [5, 6, 7]], ids=["conversation", "token ids"])
def test_a_conversation_or_token_ids_may_be_given_alone(llm, prompt):
    (only,) = llm.generate(prompt, SamplingParams(max_tokens=2, ignore_eos=True))
    assert len(only.token_ids) == 2


def test_one_prompt_may_be_given_alone(llm):
    (only,) = llm.generate("alone", SamplingParams(max_tokens=3))
    assert (only.text, only.finish_reason) == ("alo", "length")
    assert only.usage.completion_tokens == 3


def test_a_chat_is_parsed_into_reasoning_and_answer(llm):
    answer = llm.chat(user("<think>why not</think>Because."))
    assert (answer.reasoning, answer.text, answer.finish_reason) == ("why not", "Because.", "stop")


def test_more_prompts_than_the_engine_takes_at_once_wait_for_a_place():
    from vllm_mlx_core.api import EngineSettings

    few = Settings(engine=EngineSettings(max_num_seqs=2, max_queue=2))
    with LLM("scripted", plugins=[SCRIPTED], settings=few) as llm:
        assert [each.text for each in llm.generate([str(i) for i in range(20)])] == [str(i) for i in range(20)]


def test_a_stream_joins_to_the_whole_text(llm):
    text = "👩‍👩‍👧 日本語 é, and more. " * 60
    pieces = list(llm.stream(user(text)))
    assert "".join(pieces) == text
    assert len(pieces) > 3


def test_leaving_a_stream_early_frees_it(llm):
    stream = llm.stream(user("x" * 50_000))
    assert next(stream) == "x"
    stream.close()
    assert llm.chat(user("next")).text == "next"


def test_a_bad_request_raises_and_the_next_one_works(llm):
    with pytest.raises(InvalidRequest):
        llm.generate("x", SamplingParams(temperature=-1))
    with pytest.raises(InvalidRequest):
        list(llm.stream(user("x"), SamplingParams(top_p=2)))
    assert llm.chat(user("fine")).text == "fine"


def test_a_model_that_does_not_exist_is_an_error_of_its_own(tmp_path):
    with pytest.raises(ModelNotFound):
        LLM(str(tmp_path / "nowhere"))


def test_closing_twice_is_harmless():
    llm = LLM("scripted", plugins=[SCRIPTED])
    llm.close()
    llm.close()


@pytest.mark.anyio
async def test_an_engine_that_was_not_started_says_so():
    with pytest.raises(RuntimeError, match="not started"):
        await AsyncEngine("scripted", plugins=[SCRIPTED]).generate("x")


@pytest.mark.anyio
async def test_outputs_carry_events_tokens_and_usage():
    parsing = Settings(reasoning_parser="think", tool_parser="hermes")
    call = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=parsing) as engine:
        outputs = [o async for o in engine.outputs(user("#open-think\nhm</think>yes"))]
        assert "".join(e.text for o in outputs for e in o.events if isinstance(e, ReasoningDelta)) == "hm"
        assert outputs[-1].finish == "stop"
        assert outputs[-1].usage is not None
        assert outputs[-1].usage.completion_tokens == len("hm</think>yes") + 1
        completion = Completion()
        from vllm_mlx_core.api import Chat, Tool

        async for output in engine.outputs(Chat(messages=user(call), tools=[Tool("f")])):
            completion.add(output)
        assert completion.finish_reason == "tool_calls"
        (made,) = completion.tool_calls
        assert isinstance(made, ToolCall)
        assert (made.name, made.is_complete) == ("f", True)


def test_a_stop_string_may_be_given_alone(llm):
    answer = llm.chat(user("abcdef"), SamplingParams(stop="de"))
    assert (answer.text, answer.stop) == ("abc", "de")


def test_closing_fails_the_calls_that_other_threads_wait_for():
    llm = LLM("scripted", plugins=[SCRIPTED])
    results: list[object] = []

    def note(call) -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    long = user("x" * 50_000)
    stream = llm.stream(long)
    assert next(stream) == "x"
    threads = [
        threading.Thread(target=note, args=(call,))
        for call in (lambda: llm.generate([long] * 40), lambda: llm.chat(long), lambda: list(stream), llm.close)
    ]
    for thread in threads:
        thread.start()
    llm.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert sum(isinstance(each, RequestError | RuntimeError) for each in results) == 3, results


def test_a_closed_llm_says_so():
    llm = LLM("scripted", plugins=[SCRIPTED])
    llm.close()
    for call in (lambda: llm.generate("x"), lambda: llm.chat(user("x")), lambda: list(llm.stream("x"))):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_two_models_in_one_process_do_not_disturb_each_other():
    with LLM("scripted", plugins=[SCRIPTED]) as first, LLM("scripted", plugins=[SCRIPTED]) as second:
        texts = {llm: [f"{name} {i}" for i in range(30)] for name, llm in (("a", first), ("b", second))}
        answers = {}

        def ask(llm: LLM) -> None:
            answers[llm] = [each.text for each in llm.generate([user(text) for text in texts[llm]])]

        threads = [threading.Thread(target=ask, args=(llm,)) for llm in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert answers == texts
        first.close()
        assert second.chat(user("still here")).text == "still here"


@pytest.mark.parametrize("ending", ["raise SystemExit(7)", "sys.exit(7)", "loaded.append(llm); sys.exit(7)"])
def test_a_script_that_ends_while_its_engine_works_exits_as_it_meant_to(ending):
    script = f"""
import sys, threading
from vllm_mlx_core import LLM
loaded = []
llm = LLM("scripted", plugins=[{SCRIPTED!r}])
stream = llm.stream([{{"role": "user", "content": "x" * 50_000}}])
next(stream)
{ending}
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (7, "")


async def started() -> AsyncEngine:
    engine = AsyncEngine("scripted", plugins=[SCRIPTED])
    await engine.start()
    return engine


def engine_threads() -> int:
    return sum(thread.name.startswith("engine ") for thread in threading.enumerate())


def test_one_event_loop_after_the_other_may_use_an_engine():
    async def ask(engine: AsyncEngine, text: str) -> str:
        return (await engine.generate(user(text))).text

    async def leave_open(engine: AsyncEngine) -> None:
        from vllm_mlx_core.api import Chat, GenerateRequest

        request = GenerateRequest(request_id="r", model="scripted", prompt=Chat(messages=user("x" * 100_000)))
        await engine.loaded.client.generate(request)

    engine = asyncio.run(started())
    assert asyncio.run(ask(engine, "first")) == "first"
    asyncio.run(leave_open(engine))
    assert asyncio.run(ask(engine, "second")) == "second"
    assert engine.loaded.client.health()["requests"] == 0, "what the closed loop left open was given up"
    asyncio.run(engine.aclose())


@pytest.mark.anyio
async def test_two_event_loops_at_once_are_refused():
    engine = await started()
    outputs = engine.outputs(user("x" * 50_000))
    await anext(outputs)

    def elsewhere() -> None:
        asyncio.run(engine.generate(user("y")))

    with pytest.raises(RuntimeError, match="another event loop"):
        await asyncio.to_thread(elsewhere)
    await outputs.aclose()
    await engine.aclose()


@pytest.mark.anyio
async def test_starting_twice_at_once_loads_once_and_a_cancelled_start_leaves_nothing():
    before = engine_threads()
    engine = AsyncEngine("scripted", plugins=[SCRIPTED])
    await asyncio.gather(engine.start(), engine.start())
    assert engine_threads() == before + 1
    await engine.aclose()
    starting = asyncio.ensure_future(engine.start())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with asyncio.timeout(30):
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()  # the load has ended
    assert engine_threads() == before
