"""Keys, prompts and answers stay between a client and the server, and only who may ask is answered."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from .dialects import DIALECTS, EVERY_DIALECT, Chat, Dialect
from .processes import process

KEY, WRONG_KEY = "sk-right-7f3a9c", "sk-wrong-51be02"
SECRET = "xyzzy-plugh-42"
"""Stands in every prompt, and so in every answer."""
TOOL = ("lookup", {"type": "object", "properties": {"q": {"type": "string"}}})
CALL = f'<tool_call>\n{{"name": "lookup", "arguments": {{"q": "{SECRET}"}}}}\n</tool_call>'
ELSEWHERE = "https://page.example"


@pytest.fixture(scope="module")
def hub():
    """A socket in the place of the hub."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        listener.setblocking(False)
        yield listener


@pytest.fixture(scope="module")
def running(tmp_path_factory, hub):
    address = f"http://127.0.0.1:{hub.getsockname()[1]}"
    options = ("--api-key", KEY, "--log-level", "debug", "--enable-metrics", "--enforce-eager", "--skip-self-test")
    with process(tmp_path_factory.mktemp("secrets"), *options, HF_ENDPOINT=address) as running:
        yield running


@pytest.fixture
def url(running):
    return running.url


@pytest.fixture
def log(running):
    return running.log


@pytest.fixture
def client(url):
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client:
        yield client


def logged(log, client):
    """Return the log once it tells of a request that is made now."""
    client.get("/v1/models", headers={"x-request-id": "the-last-one"})
    while "the-last-one" not in (text := log.read_text()):  # bounded by the time limit of the test
        client.get("/health")
    return text


def bad_requests(dialect: Dialect):
    """Yield contents that are refused, each with the secret in it."""
    good = dialect.body(SECRET)
    yield json.dumps(good)[:-1].encode()
    yield json.dumps({**good, dialect.conversation: {"role": SECRET}}).encode()
    yield json.dumps({**good, dialect.conversation: [{"role": "user", "content": {"text": SECRET}}]}).encode()
    yield json.dumps({**good, dialect.conversation: [{"role": "user", "content": 7, "name": SECRET}]}).encode()
    yield json.dumps(dialect.body(SECRET, "no-such-model")).encode()
    yield json.dumps(dialect.body(SECRET * 200_000)).encode()


@EVERY_DIALECT
def test_no_log_and_no_error_has_a_prompt_an_answer_or_a_key(client, log, dialect):
    tools = [dialect.tool(*TOOL)]
    assert SECRET in dialect.ask(client, dialect.body(f"Say {SECRET}.")).text
    assert dialect.ask(client, dialect.body(CALL, tools=tools)).calls == [("lookup", {"q": SECRET})]
    broken = dialect.ask(client, dialect.body(CALL.replace("}\n", "\n"), tools=tools))
    assert SECRET in str(broken)
    for content in bad_requests(dialect):
        answer = client.post(dialect.path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 404), answer.text
        message = dialect.message(answer.json())
        assert not any(each in answer.text for each in (SECRET, KEY, "Traceback", ".py", "/site-packages/")), message
    for headers in ({"authorization": f"Bearer {WRONG_KEY}"}, {"x-api-key": WRONG_KEY}):
        answer = httpx.post(str(client.base_url) + dialect.path, json=dialect.body(SECRET), headers=headers)
        assert answer.status_code == 401
        assert not any(each in answer.text + str(answer.headers) for each in (SECRET, KEY, WRONG_KEY))
    client.get(f"/v1/models/none?api_key={KEY}&prompt={SECRET}")
    text = logged(log, client)
    assert dialect.path in text, "requests are not logged"
    assert not any(each in text for each in (SECRET, KEY, WRONG_KEY, "Traceback"))
    metrics = client.get("/metrics")
    assert metrics.status_code == 200
    assert not any(each in metrics.text for each in (SECRET, KEY, WRONG_KEY, "no-such-model"))


@EVERY_DIALECT
def test_both_headers_of_keys_are_good_in_every_protocol_and_a_wrong_key_is_told_in_its_errors(url, dialect):
    def ask(**headers):
        body = {**dialect.body("Hello"), "stream": False}
        return httpx.post(url + dialect.path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})

    for good in ({"authorization": f"Bearer {KEY}"}, {"authorization": f"bearer {KEY}"}, {"x_api_key": KEY}):
        assert dialect.whole(ask(**good).json()).text == "Hello"
    for bad in ({}, {"authorization": f"Bearer {WRONG_KEY}"}, {"x_api_key": KEY[:-1]}, {"authorization": KEY[:5]}):
        answer = ask(**bad)
        assert answer.status_code == 401
        assert dialect.message(answer.json())
        if dialect.name == "anthropic":
            assert answer.json()["error"]["type"] == "authentication_error"
        if dialect.name == "openai":
            assert answer.json()["error"]["code"] == "invalid_api_key"


@EVERY_DIALECT
def test_pages_of_other_origins_may_not_read_answers_unless_the_operator_says_so(client, url, dialect):
    asked = {"origin": ELSEWHERE, "access-control-request-method": "POST"}
    preflight = httpx.options(url + dialect.path, headers=asked)
    answer = client.post(dialect.path, json={**dialect.body("Hello"), "stream": False}, headers={"origin": ELSEWHERE})
    for response in (preflight, answer):
        assert not [name for name in response.headers if name.startswith("access-control-")]


@EVERY_DIALECT
def test_a_name_that_was_bound_to_loopback_by_someone_else_is_not_answered(client, dialect):
    body = {**dialect.body("Hello"), "stream": False}
    for host in ("rebound.example", "rebound.example:8000", "127.0.0.1.rebound.example", "localhost.rebound.example"):
        answer = client.post(dialect.path, json=body, headers={"host": host})
        assert answer.status_code in (400, 403, 421)
        assert "Hello" not in answer.text
    assert client.post(dialect.path, json=body, headers={"host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize("name", ["org/does-not-exist", "mlx-community/Qwen3-0.6B-4bit", "hf://org/name"])
def test_an_unknown_model_is_not_looked_for_on_the_hub(client, hub, name):
    for dialect in DIALECTS:
        assert client.post(dialect.path, json=dialect.body("Hello", name)).status_code == 404
    assert client.get(f"/v1/models/{name}").status_code == 404
    client.post("/api/pull", json={"model": name, "stream": False})
    with pytest.raises(BlockingIOError):
        hub.accept()


def test_what_a_request_is_called_cannot_forge_a_line_of_the_log(client, log):
    body = Chat().body("Hello", "scripted\n2026-01-01 INFO forged line")
    assert client.post("/v1/chat/completions", json=body).status_code == 404
    client.get("/v1/models/a%0aINFO%20forged%20line%0d%0a", headers={"x-request-id": "a INFO forged line"})
    assert not [line for line in logged(log, client).splitlines() if line.startswith(("INFO forged", "2026-01-01"))]
