"""Many clients of every protocol at once, of whom one in five leaves, gives up or is cancelled.

Whatever they do: the answers of the others are right, nothing runs on, and memory does not grow.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

import httpx
import pytest

from .processes import process

REQUESTS = 500
AT_ONCE = 32
WARM_UP = 100
FAULTS = ("leave", "give up", "cancel")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address and process id of a server of this module's own: what others leave behind would be counted."""
    with process(tmp_path_factory.mktemp("load")) as running:
        yield running.url, running.process.pid
    assert "Traceback" not in running.log.read_text()


def events(text):
    """Yield the data of server-sent events."""
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def chat(text, stream):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": stream}


def read_chat(text, stream):
    if not stream:
        return json.loads(text)["choices"][0]["message"]["content"]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events(text) if event["choices"])


def messages(text, stream):
    body = {"model": "default", "max_tokens": 500, "messages": [{"role": "user", "content": text}], "stream": stream}
    return "/v1/messages", body


def read_messages(text, stream):
    if not stream:
        return "".join(block["text"] for block in json.loads(text)["content"])
    return "".join(event["delta"].get("text", "") for event in events(text) if event["type"] == "content_block_delta")


def responses(text, stream):
    return "/v1/responses", {"model": "default", "input": text, "stream": stream}


def read_responses(text, stream):
    if stream:
        return "".join(event["delta"] for event in events(text) if event["type"] == "response.output_text.delta")
    return "".join(part["text"] for item in json.loads(text)["output"] for part in item["content"])


def ollama(text, stream):
    body = {"model": "default", "messages": [{"role": "user", "content": text}], "stream": stream}
    return "/api/chat", body


def read_ollama(text, stream):
    return "".join(json.loads(line)["message"]["content"] for line in text.splitlines())


PROTOCOLS = [(chat, read_chat), (messages, read_messages), (responses, read_responses), (ollama, read_ollama)]


async def one(client, number, rng):
    """Send one request and behave well or badly; return what was asked and answered, None if no answer is due."""
    write, read = PROTOCOLS[number % len(PROTOCOLS)]
    stream = rng.random() < 0.5
    fault = rng.choice(FAULTS) if rng.random() < 0.2 else None
    text = f"{number}: " + "wombat é👋 " * rng.randint(1, 12 if fault is None else 60)
    path, body = write(text.strip(), stream)
    name = f"load-{number}"
    patience = rng.uniform(0.001, 0.2) if fault == "give up" else 120
    try:
        async with client.stream("POST", path, json=body, headers={"X-Request-Id": name}, timeout=patience) as response:
            pieces = []
            async for piece in response.aiter_text():
                pieces.append(piece)
                if fault == "leave":
                    return None
                if fault == "cancel":
                    await client.post(f"/v1/requests/{name}/cancel")
            if fault is not None:
                return None
            assert response.status_code == 200, "".join(pieces)
            return text.strip(), read("".join(pieces), stream)
    except httpx.TimeoutException:
        assert fault == "give up"
        return None


async def all_of(url, numbers, seed):
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url) as client:

        async def guarded(number):
            async with gate:
                return await one(client, number, random.Random(seed + number))

        return await asyncio.gather(*map(guarded, numbers))


async def idle(url):
    """Wait until nothing runs, and return what the engine then holds beside what its cache may keep."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, asyncio.timeout(60):
        while True:
            status = (await client.get("/v1/status")).json()
            if not (status["requests"] or status["num_running"] or status["num_waiting"]):
                break
        assert (await client.delete("/v1/cache")).status_code == 200
        return (await client.get("/v1/status")).json()["metal"]["active_memory_gb"]


def resident_mb(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="reads the process's memory from /proc")
def test_a_crowd_of_clients_who_partly_misbehave(server):
    url, pid = server

    async def main():
        await all_of(url, range(WARM_UP), seed=1)
        held, resident = await idle(url), resident_mb(pid)
        answers = await all_of(url, range(WARM_UP, WARM_UP + REQUESTS), seed=2)
        return answers, held, resident, await idle(url), resident_mb(pid)

    answers, held_before, resident_before, held_after, resident_after = asyncio.run(main())
    finished = [answer for answer in answers if answer is not None]
    assert len(finished) > REQUESTS * 0.7
    assert [answer for answer in finished if answer[0] != answer[1]] == []
    assert held_after <= held_before + 0.001
    assert resident_after < resident_before + 64
