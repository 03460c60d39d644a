from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vllm_mlx_core.api import (
    ModelInfo,
    NotFound,
    ReasoningDelta,
    Settings,
    TextDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import ScriptedEngine, connect, events_reply, text_reply
from vllm_mlx_protocols.ollama import OllamaFrontend
from vllm_mlx_protocols.ollama.management_routes import REFUSED

pytestmark = pytest.mark.anyio
CHAT = {"model": "default", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
CALL = (ToolCallStart(0, "c1", "f"), ToolCallArguments(0, '{\n"a":'), ToolCallArguments(0, "1\r\n}"), ToolCallEnd(0))
FORM = {"content-type": "application/x-www-form-urlencoded"}
"""What curl says of any body."""
METRICS = [
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
]


@pytest.fixture
async def client(engine):
    settings = Settings()
    async with connect(assemble(engine, [OllamaFrontend(engine, settings)], settings)) as client:
        yield client


async def post(client, path, **body):
    response = await client.post(f"/api/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_chat_in_one_piece(client, engine):
    engine.reply = text_reply("Hello")
    answer = await post(client, "chat", **CHAT)
    assert list(answer) == ["model", "created_at", "message", "done", "done_reason", *METRICS]
    assert answer["message"] == {"role": "assistant", "content": "Hello"}
    assert (answer["model"], answer["done"], answer["done_reason"]) == ("scripted/model", True, "stop")
    assert (answer["prompt_eval_count"], answer["eval_count"], answer["load_duration"]) == (3, 6, 0)
    parts = answer["prompt_eval_duration"] + answer["eval_duration"]
    assert 0 < parts == answer["total_duration"]


async def test_thoughts_and_complete_calls(client, engine):
    cut_off = (ToolCallStart(1, "c2", "g"), ToolCallArguments(1, '{"b'))
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Look."), *CALL, *cut_off, finish="length")
    answer = await post(client, "chat", **CHAT)
    assert answer["message"] == {
        "role": "assistant",
        "content": "Look.",
        "thinking": "hm",
        "tool_calls": [{"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}],
    }
    assert answer["done_reason"] == "length"


async def test_calls_end_an_answer_as_a_stop(client, engine):
    engine.reply = events_reply(ToolCallStart(0, "c", "f"), ToolCallEnd(0), finish="tool_calls")
    answer = await post(client, "chat", **CHAT)
    assert answer["done_reason"] == "stop"
    assert answer["message"]["tool_calls"][0]["function"]["arguments"] == {}


async def test_thoughts_are_hidden_on_request(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Yes."))
    answer = await post(client, "chat", **CHAT, think=False)
    assert answer["message"] == {"role": "assistant", "content": "Yes."}


async def test_generate(client, engine):
    engine.reply = events_reply(ReasoningDelta("hm"), TextDelta("Yes."))
    answer = await post(client, "generate", model="default", prompt="Hi", stream=False)
    assert list(answer) == ["model", "created_at", "response", "thinking", "done", "done_reason", *METRICS]
    assert (answer["response"], answer["thinking"]) == ("Yes.", "hm")


@pytest.mark.parametrize(("keep_alive", "reason"), [("5m", "load"), (0, "unload")])
async def test_without_a_prompt_nothing_is_generated(client, engine, keep_alive, reason):
    chat = await post(client, "chat", model="default", keep_alive=keep_alive)
    assert chat["message"] == {"role": "assistant", "content": ""}
    generated = await post(client, "generate", model="default", keep_alive=keep_alive)
    assert generated["response"] == ""
    for answer in (chat, generated):
        assert (answer["done"], answer["done_reason"]) == (True, reason)
    assert not engine.requests


async def test_the_tag_latest_is_the_one_that_is_meant_by_none(engine):
    names = ["plain", "tagged:latest", "other:7b"]
    engine = ScriptedEngine(text_reply("x"), models=names)
    settings = Settings()
    async with connect(assemble(engine, [OllamaFrontend(engine, settings)], settings)) as client:
        asked = {"plain:latest": "plain", "plain": "plain", "tagged": "tagged:latest", "other:7b": "other:7b"}
        for name, model in asked.items():
            assert (await post(client, "chat", **{**CHAT, "model": name}))["model"] == model
            assert engine.requests[-1].model == model
        for name in ("other", "other:7b:latest:latest", "none"):
            response = await client.post("/api/chat", json={**CHAT, "model": name})
            assert response.status_code == 404
            assert list(response.json()) == ["error"]


async def test_the_models_are_listed(client, engine):
    (model,) = (await client.get("/api/tags")).json()["models"]
    assert list(model) == ["name", "model", "size", "digest", "details", "modified_at"]
    assert model["name"] == model["model"] == "scripted/model"
    assert model["modified_at"] == "2023-11-14T22:13:20Z"
    assert len(bytes.fromhex(model["digest"])) == 32
    (running,) = (await client.get("/api/ps")).json()["models"]
    assert (running["digest"], running["context_length"]) == (model["digest"], 4096)
    assert running["details"]["families"] == ["s"]


async def test_sizes_are_those_of_the_weights(client, engine, monkeypatch):
    stats = [msgspec.structs.replace(each, weights_bytes=12) for each in await engine.stats()]

    async def weigh():
        return stats

    monkeypatch.setattr(engine, "stats", weigh)
    assert (await client.get("/api/tags")).json()["models"][0]["size"] == 12
    running = (await client.get("/api/ps")).json()["models"][0]
    assert (running["size"], running["size_vram"]) == (12, 12)


@pytest.mark.parametrize("path", ["tags", "version", "ps"])
async def test_clients_may_ask_for_the_head_only(client, path):
    assert (await client.head(f"/api/{path}")).status_code == 200


async def test_the_version_is_one_that_clients_compare(client):
    body = (await client.get("/api/version")).json()
    assert all(part.isdigit() for part in body["version"].split("."))
    assert tuple(map(int, body["version"].split("."))) >= (0, 12, 11)
    assert body["vllm_mlx"]


async def test_a_model_is_shown_under_both_names_of_the_field(client, engine, monkeypatch):
    can = {"tools": True, "reasoning": True, "infill": True, "vision": False}
    info = ModelInfo(id="m", created=0, context_length=77, family="fam", capabilities=can)

    def model(name):
        if name != "m":
            raise NotFound("There is no such model.")
        return info

    monkeypatch.setattr(engine, "model", model)
    for body in ({"model": "m"}, {"name": "m"}, {"model": "m:latest", "verbose": True}):
        shown = await post(client, "show", **body)
        assert shown["capabilities"] == ["completion", "tools", "thinking", "insert"]
        assert shown["model_info"]["general.architecture"] == "fam"
        assert shown["model_info"]["fam.context_length"] == 77
        assert shown["details"]["family"] == "fam"
    assert (await client.post("/api/show", json={"model": "n"})).status_code == 404
    response = await client.post("/api/show", json={})
    assert (response.status_code, response.json()["error"]) == (400, "model: this field is required.")


async def test_only_what_a_model_can_do_is_shown(client):
    assert (await post(client, "show", model="default"))["capabilities"] == ["completion"]


async def test_pulling_a_served_model_succeeds_at_once(client):
    assert await post(client, "pull", model="default", stream=False) == {"status": "success"}
    response = await client.post("/api/pull", json={"name": "default", "insecure": True})
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line) for line in response.text.splitlines()] == [{"status": "success"}]
    response = await client.post("/api/pull", json={"model": "none"})
    assert response.status_code == 501
    assert "fetches no models" in response.json()["error"]


@pytest.mark.parametrize(("method", "path"), REFUSED)
async def test_what_would_change_the_models_is_refused(client, method, path):
    response = await client.request(method, path.replace("{digest}", "sha256:00"), json={"model": "default"})
    assert response.status_code == 501
    if method != "HEAD":
        assert list(response.json()) == ["error"]
        assert REFUSED[method, path] in response.json()["error"]


async def test_errors_name_the_field(client):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"format": "json"}, "format"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"think": "much"}, "think"),
    ]
    for fields, name in cases:
        response = await client.post("/api/chat", json={**CHAT, **fields})
        assert response.status_code == 400
        assert name in response.json()["error"]


async def test_the_request_is_known_by_the_callers_name_and_id(engine):
    settings = Settings(api_keys=["key"])
    engine.reply = text_reply("x")
    async with connect(assemble(engine, [OllamaFrontend(engine, settings)], settings)) as client:
        headers = {"Authorization": "Bearer key", "X-Request-Id": "trace"}
        assert (await client.post("/api/chat", json=CHAT, headers=headers)).status_code == 200
    assert (engine.requests[0].user, engine.requests[0].trace_id) == ("key-1", "trace")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_whoever_knocks_at_the_address_hears_that_it_runs(client, method):
    answer = await client.request(method, "/")
    assert answer.status_code == 200
    assert answer.text == ("Ollama is running" if method == "GET" else "")


@pytest.mark.parametrize("kind", [{}, FORM])
async def test_curl_needs_no_header(client, engine, kind):
    engine.reply = text_reply("Hello")
    answer = await client.post("/api/chat", content=json.dumps(CHAT), headers=kind)
    assert answer.status_code == 200, answer.text
    assert answer.json()["message"]["content"] == "Hello"
    deep = await client.post("/api/chat", content="[" * 100_000, headers=kind)
    assert deep.status_code == 400, "it is checked as any JSON is"


@pytest.mark.parametrize("kind", [{}, FORM, {"content-type": "text/plain"}])
async def test_a_web_page_cannot_send_without_being_asked(client, kind):
    answer = await client.post("/api/chat", content=json.dumps(CHAT), headers={**kind, "origin": "http://evil.example"})
    assert answer.status_code == 400
