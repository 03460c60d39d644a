"""OpenAI's own client against servers of their own, which are killed in the middle of a batch."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager

import httpx
import openai
import pytest
from openai import OpenAI

from .conftest import CALL, WEATHER
from .processes import process

ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE_S = 120


@contextmanager
def running(state, *options):
    """Start a server; yield its process and a client of it."""
    with (
        process(state, *options) as server,
        OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield server.process, client


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with running(tmp_path_factory.mktemp("batches")) as (_, client):
        yield client


def test_a_file_that_is_deleted_while_it_is_read_is_cut_off_without_a_traceback(tmp_path):
    with process(tmp_path) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        files = {"file": ("big", b"x" * 30_000_000)}
        file = client.post("/v1/files", files=files, data={"purpose": "batch"}).json()
        with client.stream("GET", f"/v1/files/{file['id']}/content") as answer:
            pieces = answer.iter_raw()
            next(pieces)
            assert client.delete(f"/v1/files/{file['id']}").status_code == 200
            with pytest.raises(httpx.RemoteProtocolError):
                for _ in pieces:
                    pass
    log = server.log.read_text()
    assert "is cut off: The file was deleted" in log
    assert "Traceback" not in log


def line(custom_id, text, **fields):
    body = {"model": "default", "messages": [{"role": "user", "content": text}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def begin(client, lines, **fields):
    content = "\n".join(json.dumps(each) for each in lines).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **fields
    )


def until(client, batch, met):
    deadline = time.monotonic() + PATIENCE_S
    while not met(batch):
        assert time.monotonic() < deadline, batch
        batch = client.batches.retrieve(batch.id)
    return batch


def end(client, batch):
    return until(client, batch, lambda batch: batch.status in ENDED)


def results(client, file_id):
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


def test_a_batch(client):
    call = {"tools": [WEATHER], "tool_choice": "required"}
    lines = [line("a", "Grüße 👩‍👩‍👧"), line("b", "x", temperature=9), line("c", CALL, **call), line("d", "x", **call)]
    batch = end(client, begin(client, lines, metadata={"job": "night"}))
    assert (batch.status, batch.metadata, batch.model) == ("completed", {"job": "night"}, "default")
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 2, 2)
    assert batch.usage.total_tokens == batch.usage.input_tokens + batch.usage.output_tokens > 0
    first, second = results(client, batch.output_file_id)
    assert first["response"]["body"]["choices"][0]["message"]["content"] == "Grüße 👩‍👩‍👧"
    assert second["response"]["body"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    errors = [(each["custom_id"], each["response"]["status_code"]) for each in results(client, batch.error_file_id)]
    assert errors == [("b", 400), ("d", 400)]


def test_a_file_that_is_no_batch(client):
    batch = end(client, begin(client, [line("a", "x"), line("a", "x")]))
    assert batch.status == "failed"
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == ("duplicate_custom_id", 2, "custom_id")


def test_files(client, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b"x" * 1_000_000)
    expiry = {"anchor": "created_at", "seconds": 3600}
    file = client.files.create(file=tmp_path / "in.jsonl", purpose="batch", expires_after=expiry)
    assert (file.filename, file.bytes, file.purpose, file.status) == ("in.jsonl", 1_000_000, "batch", "processed")
    assert file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file
    with client.files.with_streaming_response.content(file.id) as response:
        assert sum(map(len, response.iter_bytes())) == 1_000_000
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.files.create(file=b"x", purpose="vision")
    assert refused.value.param == "purpose"


def test_lists_are_walked(client):
    files = [client.files.create(file=(f"{number}", b""), purpose="batch").id for number in range(5)]
    batches = [begin(client, [line("a", "x")]).id for _ in range(3)]
    listed = [file.id for file in client.files.list(limit=2, order="asc", purpose="batch")]
    assert [file_id for file_id in listed if file_id in files] == files
    assert [batch.id for batch in client.batches.list(limit=2)][:3] == batches[::-1]
    for batch_id in batches:
        end(client, client.batches.retrieve(batch_id))


def test_a_batch_that_is_cancelled(client):
    batch = begin(client, [line(str(number), "x" * 20_000) for number in range(10)])
    until(client, batch, lambda batch: batch.status == "in_progress")
    assert client.batches.cancel(batch.id).status == "cancelling"
    assert end(client, batch).status == "cancelled"


def test_people_come_first(client):
    batch = begin(client, [line(str(number), "x" * 20_000) for number in range(10)])
    answer = client.chat.completions.create(model="default", messages=[{"role": "user", "content": "Hi"}])
    assert answer.choices[0].message.content == "Hi"
    assert client.batches.retrieve(batch.id).status in ("validating", "in_progress")
    client.batches.cancel(batch.id)
    end(client, batch)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_no_line_is_lost_or_doubled_when_the_server_ends(tmp_path, ending):
    short, long = 30, 10
    lines = [line(f"r{number}", f"text {number}") for number in range(short)]
    lines += [line(f"r{number}", f"{number} " + "x" * 500) for number in range(short, short + long)]
    with running(tmp_path) as (server, client):
        batch = begin(client, lines)
        batch = until(client, batch, lambda batch: batch.request_counts.completed >= short // 2)
        server.send_signal(ending)
        assert server.wait(30) == (0 if ending == signal.SIGTERM else -ending)
    assert batch.status == "in_progress"
    done = batch.request_counts.completed
    with running(tmp_path) as (_, client):
        assert client.batches.retrieve(batch.id).request_counts.completed >= done
        batch = end(client, batch)
        assert (batch.status, batch.request_counts.completed) == ("completed", len(lines))
        found = results(client, batch.output_file_id)
    texts = [each["response"]["body"]["choices"][0]["message"]["content"] for each in found]
    assert [each["custom_id"] for each in found] == [each["custom_id"] for each in lines]
    assert texts == [each["body"]["messages"][0]["content"] for each in lines]
