"""``vllm-mlx serve`` as a process, with the scripted model."""

import json
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

SCRIPTED = ("scripted", "--plugin", "vllm_mlx_core.testing.scripted")
PATIENCE_S = 30


@pytest.fixture
def serve():
    started: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm_mlx_core", "serve", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_banner(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read up to the end of the banner, and return the server's address and the whole text."""
    assert process.stdout is not None
    watchdog = threading.Timer(PATIENCE_S, process.kill)  # ends the loop if the banner never comes
    watchdog.start()
    text, address = "", ""
    for line in process.stdout:
        text += line
        if line.startswith("  address"):
            address = line.split()[1]
        if line.lstrip().startswith("-d "):
            watchdog.cancel()
            return address, text
    raise AssertionError(f"no banner, but {text!r} and {process.communicate()[1]!r}")


def test_it_prints_a_banner_answers_and_stops_at_sigterm(serve):
    process = serve(*SCRIPTED, "--port", "0", "--tool-call-parser", "hermes", "--api-key", "secret")
    address, text = read_banner(process)
    banner = " ".join(text.split())
    assert "model scripted" in banner
    assert "tool calls hermes" in banner
    assert "parsers --tool-call-parser" in banner
    assert "demonstration" not in banner
    assert "secret" not in banner
    body = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
    with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
        url = f"{address}/v1/chat/completions"
        assert client.post(url, json=body).status_code == 401
        answer = client.post(url, json=body, headers={"Authorization": "Bearer secret"}).json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_line_before_anything_is_loaded(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = serve(*SCRIPTED, "--port", str(port))
        out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert errors.startswith("vllm-mlx: ")
    assert f"{port} " in errors
    assert "in use" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [["--protocol", "opnai"], ["--tool-call-parser", "herms"], ["--reasoning-parser", "thnk"], ["--cache", "lruu"]],
    ids=" ".join,
)
def test_a_name_that_nothing_has_is_one_line_with_a_hint(serve, argv):
    process = serve(*SCRIPTED, "--port", "0", *argv)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert out == ""
    assert process.returncode in (1, 2)
    assert argv[1] in errors.splitlines()[-1]
    assert "Did you mean" in errors.splitlines()[-1]
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "argv",
    [
        ["--ssl-certfile", "cert.pem"],
        ["--ssl-certfile", "/no/cert.pem", "--ssl-keyfile", "/no/key.pem"],
        ["--uds", "/no/such/folder/server.sock"],
        ["--api-key-file", "/no/keys"],
    ],
    ids=" ".join,
)
def test_a_wrong_certificate_socket_or_key_file_is_one_line_before_anything_is_loaded(serve, argv):
    process = serve(*SCRIPTED, "--port", "0", *argv)
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert errors.startswith("vllm-mlx: ")
    assert errors.count("\n") == 1


def test_a_unix_socket_is_in_the_banner_answers_and_is_gone_at_the_end(serve, tmp_path):
    path = tmp_path / "a.sock"
    process = serve(*SCRIPTED, "--uds", str(path))
    address, text = read_banner(process)
    assert f"on the Unix socket {path}" in text
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=PATIENCE_S) as client:
        assert client.get(f"{address}/health").status_code == 200
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert not path.exists()


def test_logs_in_json_are_one_object_a_line_without_keys_or_prompts(serve, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice:hush\n", encoding="utf-8")
    keys.chmod(0o644)
    process = serve(*SCRIPTED, "--port", "0", "--log-format", "json", "--api-key-file", str(keys), "--rate-limit", "1")
    address, _ = read_banner(process)
    body = {"model": "default", "messages": [{"role": "user", "content": "whisper"}]}
    with httpx.Client(trust_env=False, timeout=PATIENCE_S, headers={"x-api-key": "hush"}) as client:
        answers = [client.post(f"{address}/v1/chat/completions", json=body) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert [answer.status_code for answer in answers] == [200, 429]
    records = [json.loads(line) for line in errors.splitlines()]
    requests = [record for record in records if record["logger"] == "vllm_mlx_core.server.access"]
    assert [(record["status"], record["user"]) for record in requests] == [(200, "alice"), (429, "alice")]
    assert any("can read the API keys" in record["message"] for record in records)
    assert "hush" not in errors
    assert "whisper" not in errors


def test_what_a_server_has_read_is_found_by_the_next(serve, tiny_model, tmp_path):
    folder = tmp_path / "states"
    argv = (str(tiny_model("qwen3")), "--port", "0", "--skip-self-test", "--enforce-eager")
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": "A long story. " * 40}],
        "temperature": 0,
        "max_tokens": 8,
    }
    answers, cached = [], []
    for cache in ("radix", "lru"):
        process = serve(*argv, "--cache", cache, "--ssd-cache-dir", str(folder), "--ssd-cache-max-gb", "0.1")
        address, banner = read_banner(process)
        assert f"over={cache}" in banner
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:
            answer = client.post(f"{address}/v1/chat/completions", json=body).json()
            stats = client.get(f"{address}/v1/cache/stats").json()["cache"]
        answers.append(answer["choices"][0]["message"]["content"])
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert (stats["type"], stats["tokens_fetched"], stats["unstored_parts"]) == (
            f"disk over {cache}",
            cached[-1],
            0,
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert answers[0] == answers[1]
    assert cached[0] == 0 < cached[1]
    assert stats["stored_mb"] > 0


def test_a_folder_that_cannot_hold_states_is_one_line_before_anything_is_loaded(serve, tmp_path):
    (tmp_path / "file").touch()
    process = serve(*SCRIPTED, "--port", "0", "--ssd-cache-dir", str(tmp_path / "file"))
    out, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert len(errors.splitlines()) == 1
    assert "States cannot be kept in" in errors
