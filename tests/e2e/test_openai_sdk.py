from __future__ import annotations

import json

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from .conftest import ARGUMENTS, CALL, WEATHER

TEXT = "Grüße 👩‍👩‍👧 日本語!"


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def client(base_url):
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(base_url):
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", ["default", "scripted"])
def test_an_answer(client, model):
    answer = client.chat.completions.create(model=model, messages=user(TEXT))
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEXT, "stop")
    assert answer.object == "chat.completion"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("directives", ["", "#chunk=3\n", "#chunk=100\n"])
def test_a_stream_says_the_same(client, directives):
    stream = client.chat.completions.create(
        model="default", messages=user(directives + TEXT), stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert last.choices == []
    assert last.usage.completion_tokens > 0


def test_a_length_limit_and_a_stop_string(client):
    answer = client.chat.completions.create(model="default", messages=user("abcdef"), max_completion_tokens=3)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abc", "length")
    answer = client.chat.completions.create(model="default", messages=user("abcdef"), stop=["de"])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abc", "stop")


def test_several_completions_and_logprobs(client):
    answer = client.chat.completions.create(
        model="default", messages=user("hey"), n=3, logprobs=True, top_logprobs=2, seed=1
    )
    assert [(choice.index, choice.message.content) for choice in answer.choices] == [(i, "hey") for i in range(3)]
    for choice in answer.choices:
        entries = choice.logprobs.content
        assert bytes(byte for entry in entries for byte in entry.bytes or ()).startswith(b"hey")
        assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in entries)


@pytest.mark.parametrize("as_ids", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 1, 9])
def test_an_evaluation_reads_how_likely_a_prompt_is(client, as_ids, max_tokens):
    prompts = ["Grüße 🙂 und", "a b"]
    sent = [client.post("tokenize", body={"prompt": each}, cast_to=object)["tokens"] for each in prompts]
    answer = client.completions.create(
        model="default", prompt=sent if as_ids else prompts, echo=True, logprobs=1, max_tokens=max_tokens, temperature=0
    )
    for prompt, ids, choice in zip(prompts, sent, answer.choices, strict=True):
        columns = choice.logprobs
        given = columns.tokens[: len(ids)]
        assert prompt in "".join(given)
        assert choice.text.startswith("".join(given) if as_ids else prompt)
        assert columns.token_logprobs[0] is columns.top_logprobs[0] is None
        assert all(value <= 0 for value in columns.token_logprobs[1:])
        for token, top in zip(columns.tokens[1:], columns.top_logprobs[1:], strict=True):
            assert token in top
            assert len(top) <= 2, "one alternative, and the token itself"
    assert sum(len(choice.logprobs.tokens) for choice in answer.choices) == answer.usage.total_tokens


def test_an_evaluation_reads_the_same_from_a_stream(client):
    fields = {"model": "default", "prompt": "Grüße 🙂", "echo": True, "logprobs": 2, "max_tokens": 3, "temperature": 0}
    (whole,) = client.completions.create(**fields).choices
    parts = [chunk.choices[0] for chunk in client.completions.create(**fields, stream=True)]
    assert "".join(part.text for part in parts) == whole.text
    columns = [part.logprobs for part in parts if part.logprobs]
    assert [value for part in columns for value in part.token_logprobs] == whole.logprobs.token_logprobs
    assert [value for part in columns for value in part.text_offset] == whole.logprobs.text_offset


def test_a_tool_call(client):
    answer = client.chat.completions.create(model="default", messages=user("Look.\n" + CALL), tools=[WEATHER])
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content.strip() == "Look."
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == ARGUMENTS


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_call_that_was_demanded_comes(client, choice, stream):
    answer = client.chat.completions.create(
        model="default", messages=user(CALL), tools=[WEATHER], tool_choice=choice, stream=stream
    )
    if stream:
        deltas = [call for chunk in answer for call in chunk.choices[0].delta.tool_calls or ()]
        name, arguments = deltas[0].function.name, "".join(call.function.arguments or "" for call in deltas)
    else:
        (call,) = answer.choices[0].message.tool_calls
        name, arguments = call.function.name, call.function.arguments
    assert (name, json.loads(arguments)) == ("get_weather", ARGUMENTS)


def test_the_stream_helper_accumulates_a_tool_call(client):
    with client.chat.completions.stream(
        model="default", messages=user(CALL), tools=[WEATHER], stream_options={"include_usage": True}
    ) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in events
    assert events.count("tool_calls.function.arguments.done") == 1
    (choice,) = final.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", ARGUMENTS)
    assert final.usage.total_tokens > 0


def test_a_conversation_with_a_tool_result_goes_on(client):
    first = client.chat.completions.create(model="default", messages=user(CALL), tools=[WEATHER]).choices[0].message
    answer = client.chat.completions.create(
        model="default",
        tools=[WEATHER],
        messages=[
            *user(CALL),
            first,
            {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"},
            *user("Thanks"),
        ],
    )
    assert answer.choices[0].message.content == "Thanks"


def test_reasoning_stands_beside_the_answer(client):
    text = "#open-think\nLet me think.</think>Done."
    message = client.chat.completions.create(model="default", messages=user(text)).choices[0].message
    assert (message.reasoning_content, message.content) == ("Let me think.", "Done.")
    chunks = client.chat.completions.create(model="default", messages=user(text), stream=True)
    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Let me think."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Done."


def test_completions(client):
    answer = client.completions.create(model="default", prompt=["ab", "cd"], max_tokens=2)
    assert [(choice.index, choice.text) for choice in answer.choices] == [(0, "ab"), (1, "cd")]
    chunks = client.completions.create(model="default", prompt="abc", stream=True, echo=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "abcabc"
    answer = client.completions.create(model="default", prompt="abc", n=2, best_of=3, seed=1, echo=True)
    assert [choice.text for choice in answer.choices] == ["abcabc"] * 2


def test_tokens_are_those_that_generation_counts(client):
    chat = {"model": "default", "messages": user(TEXT), "tools": [WEATHER]}
    tokens = client.post("/tokenize", body={**chat, "return_token_strs": True}, cast_to=object)
    answer = client.chat.completions.create(**chat, max_tokens=1)
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"]) == answer.usage.prompt_tokens
    back = client.post("/detokenize", body={"model": "default", "tokens": tokens["tokens"]}, cast_to=object)
    assert TEXT in back["prompt"]
    echoed = client.completions.create(model="default", prompt=tokens["tokens"], max_tokens=1, echo=True)
    assert echoed.choices[0].text.startswith(back["prompt"])


def test_request_ids_come_back(client):
    options = {"X-Request-Id": "mine-1"}
    answer = client.chat.completions.create(model="default", messages=user("x"), extra_headers=options)
    assert answer._request_id == "mine-1"


def test_models(client):
    assert [model.id for model in client.models.list()] == ["scripted"]
    model = client.models.retrieve("scripted")
    assert (model.owned_by, model.state) == ("vllm-mlx", "loaded")
    assert model.context_length == model.max_model_len > 0
    assert model.capabilities["chat"] is True


def test_errors_are_the_sdks_own(client):
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="nope", messages=user("x"))
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="default", messages=user("x"), temperature=3)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as forced:
        client.chat.completions.create(model="default", messages=user("x"), tools=[WEATHER], tool_choice="required")
    assert forced.value.param == "tool_choice"
    with pytest.raises(openai.APIError) as late:
        list(
            client.chat.completions.create(
                model="default", messages=user("x"), tools=[WEATHER], tool_choice="required", stream=True
            )
        )
    assert late.value.param == "tool_choice"
    with pytest.raises(openai.BadRequestError) as gap:
        client.completions.create(model="default", prompt="x", suffix="y")
    assert gap.value.param == "suffix"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="default", messages=user("x" * 200_000))
    assert long.value.code == "context_length_exceeded"


@pytest.mark.anyio
async def test_the_async_client(async_client):
    stream = await async_client.chat.completions.create(model="default", messages=user(TEXT), stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == TEXT
    async with async_client.chat.completions.stream(model="default", messages=user(CALL), tools=[WEATHER]) as stream:
        final = await stream.get_final_completion()
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments) == ARGUMENTS


@pytest.mark.anyio
async def test_a_client_that_leaves_frees_the_engine(async_client, server):
    import httpx

    for _ in range(3):
        stream = await async_client.chat.completions.create(
            model="default", messages=user("x" * 50_000), stream=True, max_tokens=50_000
        )
        await anext(stream.__aiter__())
        await stream.close()
    async with httpx.AsyncClient(base_url=server) as http:
        while (await http.get("/health")).json()["models"]["scripted"]["requests"]:
            pass
    answer = await async_client.chat.completions.create(model="default", messages=user("still here"))
    assert answer.choices[0].message.content == "still here"
