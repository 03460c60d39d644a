"""A small server with the OpenAI protocol, and a terminal, for commands that talk to them."""

import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Lists one model and leaves each chat request to the test's reply."""

    server: "_Server"

    def do_GET(self) -> None:
        self.send_json(200, {"object": "list", "data": [{"id": "fake-model", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.fake.requests.append((self.path, dict(self.headers), body))
        self.server.fake.reply(self, body)

    def send_json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def send_event(self, value: Any) -> None:
        data = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"data: {data}\n\n".encode())

    def send_delta(self, finish_reason: str | None = None, **delta: str) -> None:
        self.send_event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    def wait_for_disconnect(self) -> bool:
        self.connection.settimeout(30)
        return not self.connection.recv(1)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    fake: "FakeServer"


@dataclass
class FakeServer:
    url: str
    reply: Reply
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]


def echo(handler: Handler, body: dict[str, Any]) -> None:
    """Answer with the last message in two pieces, after a thought."""
    handler.begin_stream()
    text = body["messages"][-1]["content"]
    handler.send_delta(reasoning_content="let me think")
    handler.send_delta(content="You said: ")
    handler.send_delta(content=text)
    handler.send_delta(finish_reason="stop")
    handler.send_event("[DONE]")


@contextmanager
def serve(reply: Reply) -> Iterator[FakeServer]:
    server = _Server(("127.0.0.1", 0), Handler)
    server.fake = FakeServer(f"http://127.0.0.1:{server.server_address[1]}", reply)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def fake_server():
    """A server that echoes until the test gives it another ``reply``."""
    with serve(echo) as server:
        yield server


PATIENCE_S = 30
"""When a test that waits for something gives up; nothing depends on how long it really takes."""


class Terminal:
    """A command that runs in a pseudo-terminal of its own."""

    def __init__(self, *argv: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm_mlx_core", *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C becomes a signal
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        os.close(slave)
        self.shown = ""
        self._seen = 0

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str) -> str:
        """Wait until ``text`` is shown after what was expected before, and return what stood between."""
        deadline = time.monotonic() + PATIENCE_S
        while (position := self.shown.find(text, self._seen)) < 0:
            assert self._read(deadline), f"never showed {text!r}, but {self.shown[self._seen :]!r}"
        between = self.shown[self._seen : position]
        self._seen = position + len(text)
        return between

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline):
            pass
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other end is closed
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal():
    """Start commands in terminals: ``terminal("chat", "--url", …)``."""
    opened: list[Terminal] = []

    def start(*argv: str, **environment: str) -> Terminal:
        opened.append(Terminal(*argv, **environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch, tmp_path):
    """Keep the user's key, history and plugins out of the tests."""
    monkeypatch.delenv("VLLM_MLX_API_KEY", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("VLLM_MLX_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
