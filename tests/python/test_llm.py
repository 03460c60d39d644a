"""The Python interface: the same engine without a server."""

from __future__ import annotations

import pytest

from vllm_mlx_core import LLM, AsyncEngine, SamplingParams
from vllm_mlx_core.api import Completion, InvalidRequest, ModelNotFound, ReasoningDelta, Settings, ToolCall

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
    text = "👩‍👩‍👧 日本語 é, and more"
    pieces = list(llm.stream(user(text)))
    assert "".join(pieces) == text
    assert len(pieces) > 5


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
