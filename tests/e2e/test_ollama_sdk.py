"""Ollama's own Python client against a real server."""

from __future__ import annotations

import httpx
import ollama
import pytest
from ollama import AsyncClient, Client

from .conftest import ARGUMENTS, CALL, WEATHER

TEXT = "Grüße 👩‍👩‍👧 日本語!\u2028Next\x85line"
MODEL = "scripted"
THOUGHT = "#open-think\nplan it\n</think>\n\nThe answer."


@pytest.fixture
def client(server):
    with Client(host=server) as client:
        yield client


def user(content):
    return {"role": "user", "content": content}


def joined(parts):
    return "".join(part.message.content or "" for part in parts)


def test_a_chat(client):
    answer = client.chat(MODEL, [{"role": "system", "content": "Echo."}, user(TEXT)], options={"temperature": 0})
    assert (answer.message.role, answer.message.content) == ("assistant", TEXT)
    assert (answer.model, answer.done, answer.done_reason) == (MODEL, True, "stop")
    assert answer.prompt_eval_count > 0
    assert 0 < answer.prompt_eval_duration + answer.eval_duration == answer.total_duration


def test_a_stream_says_the_same(client):
    *pieces, last = client.chat(MODEL, [user(TEXT)], stream=True)
    assert joined([*pieces, last]) == TEXT
    assert len(pieces) > 1
    assert not any(piece.done for piece in pieces)
    whole = client.chat(MODEL, [user(TEXT)])
    assert (last.done, last.done_reason, last.eval_count) == (True, whole.done_reason, whole.eval_count)


def test_the_default_tag_and_the_default_model(client):
    for name in (f"{MODEL}:latest", "default"):
        assert client.chat(name, [user("Hi")]).model == MODEL


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_calls(client, stream):
    messages = [user("Look.\n" + CALL)]
    if stream:
        pieces = list(client.chat(MODEL, messages, tools=[WEATHER], stream=True))
        calls = [call for piece in pieces for call in piece.message.tool_calls or ()]
        text, reason = joined(pieces), pieces[-1].done_reason
    else:
        answer = client.chat(MODEL, messages, tools=[WEATHER])
        calls, text, reason = answer.message.tool_calls, answer.message.content, answer.done_reason
    assert (text.strip(), reason) == ("Look.", "stop")
    assert [(call.function.name, call.function.arguments) for call in calls] == [("get_weather", ARGUMENTS)]
    messages += [
        ollama.Message(role="assistant", content=text, tool_calls=calls),
        {"role": "tool", "tool_name": "get_weather", "content": "sunny"},
        user("Thanks"),
    ]
    assert client.chat(MODEL, messages, tools=[WEATHER]).message.content == "Thanks"


def test_a_python_function_as_a_tool(client):
    def get_weather(city: str, days: list[int]) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: Which days from now.
        """
        return f"{city}: {days}"

    (call,) = client.chat(MODEL, [user(CALL)], tools=[get_weather]).message.tool_calls
    assert get_weather(**call.function.arguments) == "Zürich: [1, 2]"


def test_thoughts_stand_apart(client):
    for think in (None, True, "high"):
        message = client.chat(MODEL, [user(THOUGHT)], think=think).message
        assert (message.thinking.strip(), message.content.strip()) == ("plan it", "The answer.")
    pieces = [piece.message for piece in client.chat(MODEL, [user(THOUGHT)], think=True, stream=True)]
    assert "".join(piece.thinking or "" for piece in pieces).strip() == "plan it"
    assert "".join(piece.content or "" for piece in pieces).strip() == "The answer."


def test_thoughts_are_hidden_on_request(client):
    assert not client.chat(MODEL, [user(THOUGHT)], think=False).message.thinking
    assert not any(piece.message.thinking for piece in client.chat(MODEL, [user(THOUGHT)], think=False, stream=True))


def test_the_beginning_of_the_answer_is_continued(client):
    assert client.chat(MODEL, [user("abcdef"), {"role": "assistant", "content": "abc"}]).message.content == "def"


def test_options(client):
    answer = client.chat(MODEL, [user("abcdef")], options={"num_predict": 3, "num_ctx": 2048})
    assert (answer.message.content, answer.done_reason, answer.eval_count) == ("abc", "length", 3)
    answer = client.chat(MODEL, [user("one STOP two")], options=ollama.Options(stop=["STOP"], seed=1, top_k=1))
    assert (answer.message.content, answer.done_reason) == ("one ", "stop")


def test_logprobs(client):
    answer = client.chat(MODEL, [user("ab")], logprobs=True, top_logprobs=2)
    assert "".join(each.token for each in answer.logprobs).startswith("ab")
    assert all(len(each.top_logprobs) == 2 for each in answer.logprobs)


def test_generate(client):
    answer = client.generate(MODEL, TEXT, system="Echo.")
    assert (answer.response, answer.done_reason) == (TEXT, "stop")
    *pieces, last = client.generate(MODEL, TEXT, stream=True)
    assert "".join(piece.response for piece in pieces) == TEXT
    assert (last.done, last.response) == (True, "")
    assert client.generate(MODEL, THOUGHT, think=True).thinking.strip() == "plan it"
    assert client.generate(MODEL, "raw text", raw=True, options={"num_predict": 4}).eval_count == 4


def test_loading_and_unloading_change_nothing(client):
    assert client.generate(MODEL).done_reason == "load"
    assert client.chat(MODEL, keep_alive=0).done_reason == "unload"
    assert client.chat(MODEL, [user("Hi")], keep_alive="5m").message.content == "Hi"


def test_what_is_served(client, server):
    (listed,) = client.list().models
    (running,) = client.ps().models
    assert (listed.model, running.model) == (MODEL, MODEL)
    assert listed.digest == running.digest
    shown = client.show(MODEL)
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == running.context_length
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities)
    assert httpx.head(f"{server}/api/version").status_code == 200


def test_a_served_model_can_be_pulled_and_nothing_else(client):
    assert client.pull(MODEL).status == "success"
    assert [each.status for each in client.pull(MODEL, stream=True)] == ["success"]
    for refused in (
        lambda: client.pull("none"),
        lambda: client.push(MODEL),
        lambda: client.create("mine", from_=MODEL),
        lambda: client.copy(MODEL, "mine"),
        lambda: client.embed(MODEL, "text"),
        lambda: client.embeddings(MODEL, "text"),
    ):
        with pytest.raises(ollama.ResponseError) as error:
            refused()
        assert error.value.status_code == 501


def test_errors_are_those_of_the_client(client):
    with pytest.raises(ollama.ResponseError) as missing:
        client.chat("none", [user("Hi")])
    assert missing.value.status_code == 404
    for fields in ({"format": "json"}, {"options": {"temperature": 9}}):
        with pytest.raises(ollama.ResponseError) as refused:
            client.chat(MODEL, [user("Hi")], **fields)
        assert refused.value.status_code == 400
        assert next(iter(fields)) in refused.value.error
    with pytest.raises(ollama.ResponseError, match=r"messages\[0\]\.images"):
        next(iter(client.chat(MODEL, [{**user("Hi"), "images": ["aaaa"]}], stream=True)))


def test_a_stream_that_is_left_early_frees_its_place(client):
    for _ in range(3):
        pieces = client.chat(MODEL, [user("word " * 90)], stream=True)
        assert next(pieces)
        pieces.close()
    assert client.chat(MODEL, [user("still here")]).message.content == "still here"


@pytest.mark.anyio
async def test_the_client_that_does_not_block(server):
    async with AsyncClient(host=server) as client:
        assert (await client.chat(MODEL, [user(TEXT)])).message.content == TEXT
        assert joined([piece async for piece in await client.chat(MODEL, [user(TEXT)], stream=True)]) == TEXT
