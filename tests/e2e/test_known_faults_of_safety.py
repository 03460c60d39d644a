"""What no request may bring about in any protocol: fetches, code of others, unbounded work, a look at files."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from vllm_mlx_core.host import Host

from .dialects import DIALECTS, EVERY_DIALECT, Dialect
from .serving import load, serving

CHAT, RESPONSES, MESSAGES, OLLAMA = DIALECTS
HUGE = 10**9
CONTEXT = 128
CROWD = 200_000
"""Far more entries than any list may have; the body is still of an allowed size."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    with serving(host, load(host, "scripted", "scripted", "hermes", "qwen3"), path="") as client:
        yield client


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket of loopback to lure the server to."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.setblocking(False)
        yield listener


def visits(listener: socket.socket) -> int:
    """Return how many connections were made since the last time; they are dropped."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def user(dialect: Dialect, *parts: dict[str, Any]) -> dict[str, Any]:
    return dialect.body([{"role": "user", "content": [dialect.text_part("Look:"), *parts]}])


def pictures(url: str) -> Iterator[tuple[Dialect, dict[str, Any]]]:
    """Yield requests, in every protocol, that show the model what is under a URL."""
    yield CHAT, user(CHAT, {"type": "image_url", "image_url": {"url": url}})
    yield CHAT, user(CHAT, {"type": "image_url", "image_url": url})
    yield CHAT, user(CHAT, {"type": "audio_url", "audio_url": {"url": url}})
    yield CHAT, user(CHAT, {"type": "video_url", "video_url": {"url": url}})
    yield CHAT, user(CHAT, {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}})
    yield CHAT, user(CHAT, {"type": "file", "file": {"file_data": url, "filename": "a.pdf"}})
    yield RESPONSES, user(RESPONSES, {"type": "input_image", "image_url": url, "detail": "auto"})
    yield RESPONSES, user(RESPONSES, {"type": "input_file", "file_url": url})
    yield RESPONSES, user(RESPONSES, {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}})
    yield MESSAGES, user(MESSAGES, {"type": "image", "source": {"type": "url", "url": url}})
    yield MESSAGES, user(MESSAGES, {"type": "document", "source": {"type": "url", "url": url}})
    yield OLLAMA, OLLAMA.body([{"role": "user", "content": "Look:", "images": [url]}])


def test_nothing_under_a_url_is_fetched_or_read_whatever_kind_of_media_it_is_said_to_be(client, listener, tmp_path):
    port = listener.getsockname()[1]
    secret = tmp_path / "secret.png"
    secret.write_text("the content of a secret file")
    hosts = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "user@127.0.0.1")
    urls = [f"http://{host}:{port}/a.png" for host in hosts]
    for url in [*urls, f"file://{secret}", str(secret), f"ftp://127.0.0.1:{port}/a", "data:image/png;base64,AAAA"]:
        for dialect, body in pictures(url):
            for stream in (False, True):
                answer = client.post(dialect.path, json={**body, "stream": stream})
                assert answer.status_code == 400, (dialect.name, body, answer.text)
                assert dialect.message(answer.json())
                assert "secret file" not in answer.text
    assert visits(listener) == 0
    with socket.create_connection(("127.0.0.1", port)):
        assert visits(listener) == 1, "the listener counts nothing"


def test_media_in_results_of_tools_is_not_fetched(client, listener):
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/a.png"
    content = [{"type": "text", "text": "seen"}, {"type": "image", "source": {"type": "url", "url": url}}]
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "#echo-results\nLook."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]},
    ]
    said = MESSAGES.ask(client, MESSAGES.body(turns, tools=[MESSAGES.tool("f", {"type": "object"})]))
    assert "seen" in said.text
    assert "left out" in said.text
    results: list[dict[str, Any]] = [
        {"role": "user", "content": "#echo-results\nLook."},
        {"type": "function_call", "call_id": "t", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t", "output": [{"type": "input_image", "image_url": url}]},
    ]
    tools = [RESPONSES.tool("f", {"type": "object"})]
    assert RESPONSES.ask(client, RESPONSES.body(results, tools=tools)).text == (
        "[input_image left out: this model reads text only]"
    )
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "#echo-results\nLook."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": [{"type": "image_url", "image_url": {"url": url}}]},
    ]
    said = CHAT.ask(client, CHAT.body(turns, tools=[CHAT.tool("f", {"type": "object"})]))
    assert said.text == "[image_url left out: this model reads text only]"
    assert visits(listener) == 0


# -- code ------------------------------------------------------------------------------------------------------------


@EVERY_DIALECT
def test_no_request_can_have_the_code_of_a_model_folder_run(client, dialect, tiny_model, tmp_path):
    ran = tmp_path / "ran"
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path / "model")
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_file": "own.py"}))
    trust = {"trust_remote_code": True, "model_file": str(folder / "own.py")}
    everywhere = {**trust, "extra_body": trust, "chat_template_kwargs": trust, "options": trust, "model_kwargs": trust}
    assert client.post(dialect.path, json=dialect.body("Hello", str(folder), **everywhere)).status_code == 404
    answer = client.post(dialect.path, json=dialect.body("Hello", **everywhere, stream=False))
    assert answer.status_code in (200, 400)
    assert not ran.exists()


# -- work ------------------------------------------------------------------------------------------------------------

TEXT = {"prompt": "Hello"}
UNBOUNDED: dict[str, tuple[str, dict[str, Any]]] = {
    "completions asked for": (CHAT.path, CHAT.body("Hello", n=10_000)),
    "no completions": (CHAT.path, CHAT.body("Hello", n=0)),
    "stops of chat": (CHAT.path, CHAT.body("Hello", stop=["x"] * CROWD)),
    "bias": (CHAT.path, CHAT.body("Hello", logit_bias={str(token): 1 for token in range(CROWD)})),
    "alternatives of chat": (CHAT.path, CHAT.body("Hello", logprobs=True, top_logprobs=HUGE)),
    "tools": (CHAT.path, CHAT.body("Hello", tools=[CHAT.tool(f"f{n}", {}) for n in range(CROWD // 10)])),
    "best of texts": ("/v1/completions", {**TEXT, "best_of": 10_000}),
    "texts": ("/v1/completions", {**TEXT, "n": 10_000}),
    "no texts": ("/v1/completions", {**TEXT, "n": 0}),
    "prompts": ("/v1/completions", {"prompt": ["x"] * CROWD}),
    "alternatives of texts": ("/v1/completions", {**TEXT, "logprobs": HUGE}),
    "prompt log probabilities": ("/v1/completions", {**TEXT, "prompt_logprobs": HUGE}),
    "alternatives of responses": (RESPONSES.path, RESPONSES.body("Hello", top_logprobs=HUGE)),
    "stops of messages": (MESSAGES.path, MESSAGES.body("Hello", stop_sequences=["x"] * CROWD)),
    "stops of ollama": (OLLAMA.path, OLLAMA.body("Hello", options={"stop": ["x"] * CROWD})),
    "alternatives of ollama": (OLLAMA.path, OLLAMA.body("Hello", logprobs=True, top_logprobs=HUGE)),
}


@pytest.mark.parametrize("case", UNBOUNDED)
@pytest.mark.parametrize("stream", [False, True])
def test_more_work_than_is_reasonable_is_refused_before_any_of_it(client, case, stream):
    path, body = UNBOUNDED[case]
    answer = client.post(path, json={"model": "scripted", **body, "stream": stream})
    assert answer.status_code == 400, answer.text[:200]
    assert len(answer.content) < 2_000, "the error repeats the request"


@pytest.fixture(scope="module")
def endless(tiny_model, tmp_path_factory) -> Iterator[httpx.Client]:
    """A client of a model that never ends an answer, and has a context of ``CONTEXT`` tokens."""
    folder = shutil.copytree(tiny_model("qwen3"), tmp_path_factory.mktemp("endless") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": CONTEXT}))
    host = Host()
    host.load([])
    with serving(host, load(host, str(folder), "endless", "none", "none"), path="") as client:
        yield client


@EVERY_DIALECT
def test_a_huge_limit_of_tokens_means_no_more_than_the_context(endless, dialect):
    cold = dialect.option("temperature", 0)
    for limit in ({dialect.limit: HUGE}, {dialect.limit: CONTEXT}):
        fields = {"options": cold["options"] | limit} if "options" in cold else cold | limit
        said = dialect.ask(endless, dialect.body("Hello", "endless", **fields))
        assert (said.finish, 0 < len(said.text) < CONTEXT) == (dialect.too_long, True)


@EVERY_DIALECT
def test_deep_json_and_large_bodies_are_refused_in_the_errors_of_the_protocol(client, dialect):
    head = json.dumps(dialect.body("Hello"))[:-1] + ', "metadata": '
    deep = head + "[" * 50_000 + "]" * 50_000 + "}"
    large = head + '"' + "x" * (65 * 1024 * 1024) + '"}'
    for content, status in ((deep, 400), (large, 413)):
        answer = client.post(dialect.path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == status
        assert dialect.message(answer.json())
        assert len(answer.content) < 1_000


# -- names -----------------------------------------------------------------------------------------------------------

NAMES = [
    "../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "file:///etc/passwd",
    "scripted/../scripted", "scripted\0", "\0", "..\\..\\windows\\win.ini", "~/.ssh/id_rsa", "x" * 5_000, "org/none",
]  # fmt: skip
WITH_MODEL: dict[str, dict[str, Any]] = {
    **{dialect.path: {**dialect.body("Hello"), "stream": False} for dialect in DIALECTS},
    "/v1/completions": TEXT,
    "/v1/tokenize": TEXT,
    "/v1/messages/count_tokens": MESSAGES.body("Hello"),
    "/v1/responses/input_tokens": RESPONSES.body("Hello"),
    "/api/generate": {**TEXT, "stream": False},
    "/api/show": {},
}


@pytest.mark.parametrize("path", WITH_MODEL)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_a_path_is_no_model(client, path, name):
    answer = client.post(path, json={**WITH_MODEL[path], "model": name})
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text


@pytest.mark.parametrize("path", WITH_MODEL)
def test_errors_do_not_tell_paths_that_exist_from_those_that_do_not(client, path, tmp_path):
    there, missing = tmp_path / "there", tmp_path / "gone!"
    there.mkdir()
    (there / "config.json").write_text("{}")
    seen = set()
    for place in (there, missing):
        answer = client.post(path, json={**WITH_MODEL[path], "model": str(place)})
        answered = answer.json()
        answered.pop("request_id", None)
        seen.add((answer.status_code, json.dumps(answered).replace(str(place), "PLACE")))
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models/{}"), ("GET", "/v1/responses/{}"), ("DELETE", "/v1/responses/{}"),
        ("GET", "/v1/responses/{}/input_items"), ("POST", "/v1/responses/{}/cancel"),
        ("DELETE", "/v1/requests/{}"), ("POST", "/v1/requests/{}/cancel"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "name", ["%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%252e%252e%252fetc", "%00", "resp_%00", "%2fetc%2fpasswd", "..%5c..%5c"]
)
def test_an_id_in_the_address_that_is_a_path_is_not_found(client, method, path, name):
    answer = client.request(method, path.format(name))
    assert answer.status_code in (400, 404, 405)
    assert CHAT.message(answer.json())
    assert "root:" not in answer.text


@pytest.mark.parametrize("name", ["../../../etc/passwd", "resp_\0", "/etc/passwd", "'; drop table responses; --"])
def test_a_previous_response_that_is_a_path_is_not_found(client, name):
    answer = client.post(RESPONSES.path, json=RESPONSES.body("Hello", previous_response_id=name))
    assert answer.status_code in (400, 404)
    assert RESPONSES.message(answer.json())
