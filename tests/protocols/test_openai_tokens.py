from __future__ import annotations

import pytest

pytestmark = pytest.mark.anyio
USER = {"role": "user", "content": "Hé"}
TOOL = {"type": "function", "function": {"name": "ping"}}


async def post(client, path, **fields):
    response = await client.post(f"/v1/{path}", json=fields)
    return response.status_code, response.json()


async def refused(client, path="tokenize", **fields):
    status, body = await post(client, path, **fields)
    assert status == 400
    return body["error"]["param"]


async def test_a_text_and_its_tokens(client):
    expected = {"count": 2, "max_model_len": 4096, "tokens": [72, 233], "token_strs": None}
    assert await post(client, "tokenize", model="default", prompt="Hé") == (200, expected)
    status, body = await post(client, "tokenize", prompt="Hé", return_token_strs=True)
    assert (status, body) == (200, {**expected, "token_strs": ["H", "é"]})
    assert await post(client, "detokenize", model="default", tokens=[72, 233]) == (200, {"prompt": "Hé"})


async def test_nothing_has_no_tokens(client):
    assert (await post(client, "tokenize", prompt=""))[1]["tokens"] == []
    assert (await post(client, "detokenize", tokens=[]))[1] == {"prompt": ""}


async def test_nothing_is_generated(client, engine):
    assert (await post(client, "tokenize", messages=[USER]))[0] == 200
    assert engine.requests == []


async def test_a_conversation_is_rendered_as_for_an_answer(client, engine, monkeypatch):
    rendered = []
    render = engine.render

    async def watch(request):
        rendered.append(request)
        return await render(request)

    monkeypatch.setattr(engine, "render", watch)
    fields = {
        "messages": [USER, {"role": "assistant", "content": "Once"}],
        "tools": [TOOL, {"type": "function", "function": {"name": "other"}}],
        "tool_choice": TOOL,
        "chat_template_kwargs": {"x": 1},
        "enable_thinking": False,
        "reasoning_effort": "high",
        "continue_final_message": True,
    }
    assert (await post(client, "tokenize", **fields))[1]["tokens"] == [ord(each) for each in "Hé\nOnce"]
    await client.post("/v1/chat/completions", json=fields)
    assert [request.prompt for request in rendered] == [request.prompt for request in engine.requests]
    assert rendered[0].trace_id


async def test_special_tokens_are_the_clients_to_choose_for_a_text(client, engine, monkeypatch):
    asked = []
    render = engine.render

    async def watch(request):
        asked.append(request.add_special_tokens)
        return await render(request)

    monkeypatch.setattr(engine, "render", watch)
    for said in (None, True, False):
        assert (await post(client, "tokenize", prompt="x", add_special_tokens=said))[0] == 200
    assert asked == [True, True, False]
    assert await refused(client, messages=[USER], add_special_tokens=True) == "add_special_tokens"


async def test_what_does_not_go_together_is_refused_by_name(client):
    assert await refused(client) == "prompt"
    assert await refused(client, prompt="x", messages=[USER]) == "prompt"
    assert await refused(client, prompt="x", tools=[TOOL]) == "tools"
    assert await refused(client, prompt="x", add_generation_prompt=False) == "add_generation_prompt"
    assert await refused(client, messages=[USER], tool_choice="required") == "tool_choice"
    assert await refused(client, messages=[USER], chat_template="{{ x }}") == "chat_template"
    assert await refused(client, messages=[{"role": "user"}]) == "messages[0].content"
    assert await refused(client, prompt="x" * 4097, return_token_strs=True) == "return_token_strs"
    assert await refused(client, "detokenize", tokens=[0x110000]) == "tokens"
    assert await refused(client, "detokenize", tokens=[-1]) == "tokens[0]"
    assert await refused(client, "detokenize", tokens="x") == "tokens"
    assert await refused(client, "detokenize") == "tokens"


async def test_a_text_may_be_longer_than_the_context(client):
    assert (await post(client, "tokenize", prompt="x" * 5000))[1]["count"] == 5000


async def test_an_unknown_model_is_not_found(client):
    for path, fields in (("tokenize", {"prompt": "x"}), ("detokenize", {"tokens": []})):
        status, body = await post(client, path, model="nope", **fields)
        assert (status, body["error"]["code"]) == (404, "model_not_found")


async def test_there_are_no_unversioned_aliases(client):
    for path in ("/tokenize", "/detokenize"):
        assert (await client.post(path, json={"prompt": "x"})).status_code == 404
