"""Prompts that are in the prefix cache before anybody asks."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from vllm_mlx_core.api import Chat, EngineSettings, LoadOptions, Settings, Tool
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency import warm_up
from vllm_mlx_core.residency.loader import load_model

from .processes import process
from .serving import serving

PATIENCE_S = 60
SYSTEM = {"role": "system", "content": "You are a planner. " * 12}
OTHER = {"role": "system", "content": "You are a code assistant. " * 10}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "Does it.", "parameters": {"type": "object", "properties": {}}},
}
BROKEN_CACHE = str(Path(__file__).parents[1] / "engine" / "plugins" / "broken_cache.py")
QUICK = EngineSettings(self_test=False, enforce_eager=True)


@contextmanager
def warmed(model, *prompts, engine=QUICK, plugins=(), close=False):
    """Serve a model with prompts to be warmed; yield a client of the whole server."""
    host = Host()
    host.load(plugins)
    settings = Settings(warm_prompts=prompts, engine=engine, served_model_name="m")
    loaded = load_model(str(model), host, settings, LoadOptions())
    if close:
        loaded.client.close()
    with serving(host, loaded, path="", warm_prompts=prompts) as client:
        yield client


def chat(*messages, **more):
    return Chat(messages=messages, **more)


def state(client):
    return client.get("/v1/status").json()["models"][0]["warm_prompts"]


def until_read(client):
    """Wait for the reading to end, and return how it went."""
    deadline = time.monotonic() + PATIENCE_S
    while (now := state(client))["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return now


def ask(client, *messages, **more):
    """Ask for one token, and return (tokens of the prompt, those that came from the cache)."""
    body = {"model": "m", "messages": messages, "max_tokens": 1, **more}
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    usage = response.json()["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def user(text):
    return {"role": "user", "content": text}


def common(client, *messages, **more):
    """Return how many tokens all conversations have in common that begin with ``messages`` and go on with a user."""
    first, second = (
        client.post("/v1/tokenize", json={"model": "m", "messages": [*messages, user(text)], **more}).json()["tokens"]
        for text in ("zebra", "*quagga")
    )
    return next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba2", "qwen3_next"])
def test_the_first_request_computes_only_its_own_text(architecture, tiny_model):
    with warmed(tiny_model(architecture), chat(SYSTEM), chat(OTHER)) as client:
        done = until_read(client)
        lengths = [common(client, each) for each in (SYSTEM, OTHER)]
        assert (done["entries"], done["warmed"], done["failed"], done["tokens"]) == (2, 2, 0, sum(lengths))
        for message, length in zip((SYSTEM, OTHER), lengths, strict=True):
            prompt_tokens, cached = ask(client, message, user("Who are you?"))
            assert cached == length
            assert prompt_tokens > length
        cleared = client.delete("/v1/cache/prefix").json()
        assert cleared["rewarm_scheduled"] is True
        assert until_read(client)["warmed"] == 2
        assert [ask(client, each, user("7 and 8?"))[1] for each in (SYSTEM, OTHER)] == lengths


def test_a_reuse_of_what_was_warmed_answers_as_without(tiny_model):
    body = {"model": "m", "messages": [SYSTEM, user("Why?")], "max_tokens": 12, "temperature": 0, "logprobs": True}

    def answer(client):
        choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
        return [each["token"] for each in choice["logprobs"]["content"]]

    model = tiny_model("qwen3_next")
    with warmed(model) as client:
        cold = answer(client)
        assert state(client) is None
        assert client.delete("/v1/cache").json()["rewarm_scheduled"] is False
    with warmed(model, chat(SYSTEM)) as client:
        until_read(client)
        assert answer(client) == cold


def test_tools_and_template_variables_are_part_of_a_prompt(tiny_model):
    prompt = chat(SYSTEM, tools=[Tool("f", "Does it.", {"type": "object", "properties": {}})])
    with warmed(tiny_model("mamba2"), prompt) as client:
        until_read(client)
        assert ask(client, SYSTEM, user("Why?"), tools=[TOOL])[1] == common(client, SYSTEM, tools=[TOOL])


def test_a_question_at_the_end_stands_for_any(tiny_model):
    shots = [SYSTEM, user("One?"), {"role": "assistant", "content": "Two."}]
    with warmed(tiny_model("mamba2"), chat(*shots, user("Three?"))) as client:
        until_read(client)
        assert ask(client, *shots, user("Five?"))[1] == common(client, *shots)


def test_an_entry_that_cannot_be_read_is_named_and_costs_nothing_else(tiny_model, caplog):
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    long = {"role": "system", "content": "x" * 40_000}
    short = chat({"role": "user", "content": "Only a question."})
    with warmed(tiny_model("llama"), chat(image, SYSTEM), chat(long), short, chat(SYSTEM)) as client:
        done = until_read(client)
        assert (done["entries"], done["warmed"], done["failed"]) == (4, 1, 3)
        assert ask(client, SYSTEM, user("Why?"))[1] == done["tokens"]
    warnings = [r.getMessage() for r in caplog.records if r.name == warm_up.__name__ and r.levelno == logging.WARNING]
    assert [text.partition(" is left out")[0] for text in warnings] == [f"--warm-prompts: entry {n}" for n in (1, 2, 3)]
    assert "messages[0].content[0]" in warnings[0]
    assert "context" in warnings[1]
    assert "16" in warnings[2]


def test_a_full_queue_is_waited_for(monkeypatch):
    monkeypatch.setattr(warm_up, "RETRY_S", 0.01)
    engine = replace(QUICK, max_num_seqs=1, max_queue=0)
    with warmed("scripted", chat(SYSTEM), engine=engine, plugins=["vllm_mlx_core.testing.scripted"]) as client:
        until_read(client)
        endless = {"max_tokens": 100_000, "min_tokens": 100_000, "ignore_eos": True, "stream": True}
        body = {"model": "m", "messages": [user("x")], **endless}
        with client.stream("POST", "/v1/chat/completions", json=body) as running:
            lines = running.iter_lines()  # dropping it would close the connection
            next(lines)
            with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S) as other:
                other.delete("/v1/cache")
                assert state(other)["running"]
                assert state(other)["warmed"] == 0
        assert until_read(client)["warmed"] == 1
        assert ask(client, SYSTEM, user("Why?"))[1] == common(client, SYSTEM)


def test_a_cache_that_fails_is_no_reason_to_go_on(tiny_model, caplog):
    engine = replace(QUICK, cache="broken:where=insert")
    with warmed(tiny_model("llama"), chat(SYSTEM), engine=engine, plugins=[BROKEN_CACHE]) as client:
        until_read(client)
        client.delete("/v1/cache")
        done = until_read(client)
        assert (done["warmed"], done["failed"]) == (0, 1)
        assert ask(client, SYSTEM, user("Why?"))[1] == 0
    assert "no prefix cache is at work" in caplog.text


def test_an_engine_that_has_ended_ends_the_reading(tiny_model, caplog):
    with warmed(tiny_model("llama"), chat(SYSTEM), close=True) as client:
        assert client.get("/version").status_code == 200
    assert "--warm-prompts: no more is read" in caplog.text


def test_a_server_stops_while_it_reads(tiny_model, caplog):
    caplog.set_level(logging.INFO, warm_up.__name__)
    many = [chat({"role": "system", "content": f"{number} " + "x" * 1500}) for number in range(100)]
    with warmed(tiny_model("llama"), *many) as client:
        assert state(client)["running"]
    assert "Warmed" not in caplog.text


def test_the_command_line_warms_and_says_so(tmp_path):
    file = tmp_path / "agents.json"
    file.write_text(json.dumps([[SYSTEM]]), encoding="utf-8")
    with process(tmp_path, "--warm-prompts", str(file)) as server, httpx.Client(base_url=server.url) as client:
        tokens = until_read(client)["tokens"]
        body = {"model": "default", "messages": [SYSTEM, user("hello")]}
        answer = client.post("/v1/chat/completions", json=body, timeout=PATIENCE_S).json()
        assert answer["choices"][0]["message"]["content"] == "hello"
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == tokens
        log = server.log.read_text()
    assert f"Warmed 1 of 1 prompts: {tokens} tokens in " in log
