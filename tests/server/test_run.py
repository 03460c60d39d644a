"""A real server on a real port."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from vllm_mlx_core.api import Settings, UsageError
from vllm_mlx_core.server import bind, http1
from vllm_mlx_core.server.http1 import MAX_HEAD_BYTES
from vllm_mlx_core.testing.protocols import ScriptedEngine, Step, text_reply


class GatedEngine(ScriptedEngine):
    """Says "a", waits for the gate, says "b"."""

    def __init__(self):
        super().__init__(self.script)
        self.closed = threading.Event()

    def script(self, request) -> list[Step]:
        self.loop = asyncio.get_running_loop()
        self.gate = asyncio.Event()
        first, *rest = text_reply("ab")
        return [first, self.gate, *rest]

    async def generate(self, request):
        stream = await super().generate(request)
        self.watching = asyncio.create_task(self.watch(stream))
        return stream

    async def watch(self, stream):
        await stream.closed.wait()
        self.closed.set()

    def open(self):
        self.loop.call_soon_threadsafe(self.gate.set)


@pytest.fixture
def engine():
    return GatedEngine()


@pytest.fixture
def stream():
    """Open a stream and read its first output."""
    opened = []

    def open_stream(port):
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        response = client.send(client.build_request("POST", "/plain/stream", json={"text": "x"}), stream=True)
        opened.append((client, response))
        lines = response.iter_lines()
        while next(lines) != "data: a":
            pass
        return response, lines

    yield open_stream
    for client, response in opened:
        response.close()
        client.close()


def refused(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_client_that_disconnects_stops_the_engine(serving, make_app, engine, stream):
    with serving(make_app()) as server:
        response, _ = stream(server.port)
        assert not engine.closed.is_set()
        response.close()
        assert engine.closed.wait(30)


def test_a_client_that_disconnects_from_a_whole_answer_stops_the_engine(serving, make_app, engine):
    with serving(make_app()) as server:
        body = b'{"text": "x"}'
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(
                b"POST /plain/whole HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            while not engine.streams or engine.streams[0].steps_taken < 2:
                os.sched_yield()
        assert engine.closed.wait(30)


def answer_to(port, pieces):
    """Send bytes, and return all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while piece := connection.recv(65536):
                answer += piece
        except (BrokenPipeError, ConnectionResetError):
            pass  # it closed before all was sent
    return answer


@pytest.mark.parametrize("path", [b"stream", b"whole"])
def test_an_old_client_gets_no_chunks(serving, make_app, engine, path):
    engine.reply = text_reply("ab")
    body = b'{"text": "x"}'
    head = b"POST /plain/%s HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    with serving(make_app()) as server:
        old, new = (
            answer_to(server.port, [head % (path, version) + b"Content-Length: %d\r\n\r\n" % len(body) + body])
            for version in (b"1.0", b"1.1")
        )
    told, _, text = old.partition(b"\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in told.lower()
    assert b"connection: close" in told.lower()
    assert text.startswith(b"data: start\n\ndata: a\n\n" if path == b"stream" else b"{")
    assert (b"transfer-encoding: chunked" in new.lower()) == (path == b"stream")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"POST /plain/whole HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_json(serving, make_app, request_):
    with serving(make_app()) as server:
        head, _, body = answer_to(server.port, [request_]).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_a_head_that_is_too_large_is_refused(serving, make_app):
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    with serving(make_app()) as server:
        for lines in (b"X: %s\r\n" % (b"x" * MAX_HEAD_BYTES), b"X: y\r\n" * MAX_HEAD_BYTES):
            answer = answer_to(server.port, [head + lines + b"\r\n"])
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
        fitting = head + b"Connection: close\r\nX: %s\r\n\r\n" % (b"x" * (MAX_HEAD_BYTES - 200))
        assert answer_to(server.port, [fitting]).startswith(b"HTTP/1.1 200 ")


def test_a_head_that_never_ends_is_refused_while_it_comes(serving, make_app):
    pieces = [b"GET / HTTP/1.1\r\nX: ", *[b"x" * 65536] * 10_000]
    sent = 0

    def counted():
        nonlocal sent
        for piece in pieces:
            yield piece
            sent += len(piece)

    with serving(make_app()) as server:
        answer_to(server.port, counted())
    assert sent < sum(map(len, pieces))


def test_a_client_that_sends_no_request_is_not_kept(serving, make_app, monkeypatch):
    monkeypatch.setattr(http1, "HEAD_TIMEOUT_S", 0.01)
    with serving(make_app()) as server:
        for begun in ([], [b"GET / HT"], [b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT"]):
            answer = answer_to(server.port, begun)
            assert answer.count(b"HTTP/1.1 200") == len(begun[1:])


def test_garbage_after_a_request_does_not_get_into_its_answer(serving, make_app, engine):
    body = b'{"text": "x"}'
    request = (
        b"POST /plain/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    with serving(make_app()) as server:
        assert b" 400 " not in answer_to(server.port, [request, b"\0garbage\r\n\r\n"])


def test_the_first_signal_refuses_new_clients_and_lets_requests_finish(serving, make_app, engine, stream):
    with serving(make_app(), drain_timeout_s=30) as server:
        _, lines = stream(server.port)
        server.signal()
        while not refused(server.port):
            os.sched_yield()
        engine.open()
        assert [line for line in lines if line] == ["data: b", "data: end"]
        server.join()


def test_what_outlasts_the_drain_is_told_and_closed(serving, make_app, engine, stream):
    with serving(make_app(), drain_timeout_s=0.05) as server:
        _, lines = stream(server.port)
        server.signal()
        assert [line for line in lines if line] == ["data: error The server is shutting down."]
        server.join()
        assert engine.closed.is_set()


def test_a_whole_answer_that_outlasts_the_drain_is_a_503(serving, make_app, engine):
    answers = []

    def ask(port):
        answers.append(httpx.post(f"http://127.0.0.1:{port}/plain/whole", json={"text": "x"}, timeout=30))

    with serving(make_app(), drain_timeout_s=0.05) as server:
        asking = threading.Thread(target=ask, args=(server.port,))
        asking.start()
        while not engine.streams:
            os.sched_yield()
        server.signal()
        asking.join(30)
        server.join()
    assert [(answer.status_code, answer.json()["plain"]) for answer in answers] == [
        (503, "The server is shutting down.")
    ]


def test_the_second_signal_stops_at_once(serving, make_app, engine, stream):
    with serving(make_app(), drain_timeout_s=3600) as server:
        stream(server.port)
        server.signal()
        server.signal()
        server.join()
        assert engine.closed.is_set()


def test_keep_alives_reach_a_client_that_waits_for_its_first_token(serving, make_app, engine):
    from .conftest import PlainFrontend

    class Impatient(PlainFrontend):
        keep_alive_s = 0.01

    engine.reply = lambda request: engine.script(request)[1:]
    with serving(make_app(frontends=[Impatient])) as server, httpx.Client(timeout=30) as client:
        url = f"http://127.0.0.1:{server.port}/plain/stream"
        with client.stream("POST", url, json={"text": "x"}) as response:
            lines = response.iter_lines()
            while next(lines) != ": keep-alive":
                pass
            engine.open()
            assert [line for line in lines if line.startswith("data")] == ["data: b", "data: end"]


def test_a_busy_port_is_one_clear_line():
    with bind(Settings(port=0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port} is in use") as info:
            bind(Settings(port=port))
    assert "\n" not in str(info.value)


def test_an_address_of_another_machine_is_one_clear_line():
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(UsageError, match="Cannot listen") as info:
            bind(Settings(host=host))
        assert "\n" not in str(info.value)


SERVER = """
import sys
from vllm_mlx_core.api import Settings
from vllm_mlx_core.server import assemble, bind, serve
from vllm_mlx_core.testing.protocols import ScriptedEngine
settings = Settings(port=0)
listener = bind(settings)
app = assemble(ScriptedEngine(), [], settings, stopped=lambda: print("stopped", flush=True))
serve(app, listener, settings, ready=lambda: print("ready", flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_clean_end_of_the_process(number):
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
