from __future__ import annotations

import asyncio

import pytest

from vllm_mlx_core.api import EngineFailed, EventStream
from vllm_mlx_core.testing.protocols import ScriptedStream, text_reply

from .conftest import PlainEncoder

pytestmark = pytest.mark.anyio


class Client:
    """The other end of one response."""

    def __init__(self):
        self.messages = []
        self.arrived = asyncio.Event()
        self.left = asyncio.Event()

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.messages.append(message)
        self.arrived.set()

    async def wait_for(self, text):
        while text not in self.body:
            self.arrived.clear()
            await self.arrived.wait()

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages)


@pytest.fixture
def client():
    return Client()


def start(client, *steps, **options):
    outputs = ScriptedStream(steps, 1, 0)
    stream = EventStream(outputs, options.pop("encoder", PlainEncoder()), **options)
    return outputs, asyncio.create_task(stream({"type": "http"}, client.receive, client.send))


async def test_events_go_out_as_they_come_and_the_end_is_the_end(client):
    outputs, task = start(client, *text_reply("ab"))
    await task
    assert client.messages[0]["type"] == "http.response.start"
    assert client.body == b"data: start\n\ndata: a\n\ndata: b\n\ndata: end\n\n"
    assert [message["more_body"] for message in client.messages[1:]] == [True] * 3 + [False]
    assert outputs.closed.is_set()


async def test_headers_go_out_before_the_first_output(client):
    outputs, task = start(client, asyncio.Event())
    await client.wait_for(b"start")
    headers = dict(client.messages[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert outputs.steps_taken <= 1
    client.left.set()
    await task


async def test_silence_is_filled_before_the_first_output_and_between_outputs(client):
    gates = asyncio.Event(), asyncio.Event()
    a, *rest = text_reply("ab")
    _, task = start(client, gates[0], a, gates[1], *rest, keep_alive_s=0.01)
    await client.wait_for(b": keep-alive\n\n: keep-alive")
    gates[0].set()
    await client.wait_for(b"data: a\n\n: keep-alive")
    gates[1].set()
    await task
    assert client.body.endswith(b"data: b\n\ndata: end\n\n")


async def test_keep_alives_stop_with_the_stream(client):
    _, task = start(client, *text_reply("a"), keep_alive_s=0.001)
    await task
    before = len(client.messages)
    await asyncio.sleep(0.01)  # several beats' time
    assert len(client.messages) == before


async def test_a_client_that_leaves_closes_the_outputs_in_the_middle_of_a_step(client):
    outputs, task = start(client, *text_reply("ab")[:2], asyncio.Event())
    await client.wait_for(b"b")
    client.left.set()
    await task
    assert outputs.closed.is_set()
    assert b"end" not in client.body


@pytest.mark.parametrize("failure", [EngineFailed("Broken."), RuntimeError("secret")])
async def test_a_failure_is_the_last_event(client, failure):
    class Encoder(PlainEncoder):
        def feed(self, outputs):
            raise failure

    outputs, task = start(client, *text_reply("ab"), encoder=Encoder())
    await task
    assert client.body.split(b"\n\n")[-2].startswith(b"data: error ")
    assert b"secret" not in client.body
    assert outputs.closed.is_set()


async def test_a_request_that_is_cancelled_says_so_and_closes(client):
    outputs, task = start(client, *text_reply("a")[:1], asyncio.Event())
    await client.wait_for(b"a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.body.endswith(b"data: error The server is shutting down.\n\n")
    assert outputs.closed.is_set()


async def test_a_client_that_does_not_read_gets_one_keep_alive_at_a_time(client):
    beats = 0
    blocked = asyncio.Event()

    async def send(message):
        nonlocal beats
        if b"keep-alive" in message.get("body", b""):
            beats += 1
            blocked.set()
            await client.left.wait()

    client.send = send
    _, task = start(client, asyncio.Event(), keep_alive_s=0.001)
    await blocked.wait()
    await asyncio.sleep(0.01)  # several beats' time
    assert beats == 1
    client.left.set()
    await task
