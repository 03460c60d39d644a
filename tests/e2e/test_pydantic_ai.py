from __future__ import annotations

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.messages import ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from .clients import LONG, await_idle
from .conftest import ARGUMENTS, CALL

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["chat completions", "responses", "anthropic"])
async def model_named(request, server):
    """Return a function from a model's name to the model, over one protocol."""
    if request.param == "anthropic":
        async with AsyncAnthropic(base_url=server, api_key="none", max_retries=0) as client:
            yield lambda name: AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
    else:
        kind = OpenAIChatModel if request.param == "chat completions" else OpenAIResponsesModel
        async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as client:
            yield lambda name: kind(name, provider=OpenAIProvider(openai_client=client))


@pytest.fixture
def agent(model_named):
    agent = Agent(model_named("default"), model_settings={"max_tokens": 50_000})

    @agent.tool_plain
    def get_weather(city: str, days: list[int]) -> str:
        """Look at the sky."""
        return f"sunny in {city} on {days}"

    return agent


def parts(result, kind):
    return [part for message in result.all_messages() for part in message.parts if isinstance(part, kind)]


async def test_an_answer(agent):
    result = await agent.run("Hello 👋")
    assert result.output == "Hello 👋"
    assert result.usage.output_tokens > 0


async def test_a_stream(agent):
    async with agent.run_stream("Hello 👋") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert (len(pieces) > 1, "".join(pieces)) == (True, "Hello 👋")


async def test_thoughts_are_parts_of_their_own(agent):
    result = await agent.run("#open-think\nHm.</think>Yes.")
    (thought,) = parts(result, ThinkingPart)
    raw = (thought.provider_details or {}).get("raw_content", [])  # where this package keeps thoughts of Responses
    assert (thought.content or "".join(raw), result.output) == ("Hm.", "Yes.")


async def test_a_turn_goes_on_with_the_tools_result(agent):
    result = await agent.run(f"#echo-results\n{CALL}")
    (call,) = parts(result, ToolCallPart)
    (returned,) = parts(result, ToolReturnPart)
    assert (call.tool_name, call.args_as_dict()) == ("get_weather", ARGUMENTS)
    assert result.output == returned.content == "sunny in Zürich on [1, 2]"


async def test_the_same_streamed(agent):
    async with agent.run_stream(f"#echo-results\n{CALL}") as result:
        assert await result.get_output() == "sunny in Zürich on [1, 2]"


async def test_errors_are_its_own(model_named, agent):
    with pytest.raises(ModelHTTPError) as missing:
        await agent.run("x", model=model_named("nope"))
    assert missing.value.status_code == 404
    with pytest.raises(ModelHTTPError) as wrong:
        await agent.run("x", model_settings={"temperature": 3})
    assert wrong.value.status_code == 400


async def test_a_stream_that_is_left_frees_the_engine(agent, server):
    async with agent.run_stream(LONG) as result:
        await anext(result.stream_text(delta=True, debounce_by=None))
    await_idle(server)
