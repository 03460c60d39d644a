"""Files and batches as a client of them sees them, over HTTP and without a socket."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager

from vllm_mlx_core.api import ApiKey, Settings
from vllm_mlx_core.server import assemble
from vllm_mlx_core.testing.protocols import connect
from vllm_mlx_protocols.batches.frontend import BatchesFrontend

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
KEYS = [ApiKey("key-of-me", "me"), ApiKey("key-of-you", "you")]
DAY_S = 86_400


class Clock:
    """A calendar that is set by hand."""

    def __init__(self):
        self.now = 1_800_000_000.0

    def __call__(self):
        return self.now


def line(custom_id, text="Hi", **fields):
    """A line that asks for a chat completion."""
    body = {"model": "default", "messages": [{"role": "user", "content": text}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def jsonl(lines):
    """The content of a file."""
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def said(request):
    """What a scripted engine is asked to answer."""
    return request.prompt.messages[-1]["content"]


class Client:
    """Asks for files and batches. Whatever fails is an assertion, unless its error is asked for."""

    def __init__(self, http, key=None):
        self.http = http
        self.headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def ask(self, method, path, **options):
        return await self.http.request(method, f"/v1{path}", headers=self.headers, **options)

    async def get(self, path, **params):
        response = await self.ask("GET", path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    async def error(self, method, path, **options):
        response = await self.ask(method, path, **options)
        error = response.json()["error"]
        assert list(error) == ["message", "type", "param", "code"]
        return response.status_code, error

    async def upload(self, content, name="in.jsonl", **form):
        response = await self.ask("POST", "/files", files={"file": (name, content)}, data={"purpose": "batch", **form})
        assert response.status_code == 200, response.text
        return response.json()

    async def begin(self, lines, endpoint=CHAT, **fields):
        content = lines if isinstance(lines, bytes) else jsonl(lines)
        order = {"input_file_id": (await self.upload(content))["id"], "endpoint": endpoint, "completion_window": "24h"}
        response = await self.ask("POST", "/batches", json={**order, **fields})
        assert response.status_code == 200, response.text
        assert response.json()["status"] == "validating"
        return response.json()

    async def cancel(self, batch):
        response = await self.ask("POST", f"/batches/{batch['id']}/cancel")
        assert response.status_code == 200, response.text
        return response.json()

    async def until(self, batch, met):
        while not met(batch):
            batch = await self.get(f"/batches/{batch['id']}")
        return batch

    async def end(self, batch):
        return await self.until(batch, lambda batch: batch["status"] not in UNFINISHED)

    async def run(self, lines, endpoint=CHAT, **fields):
        return await self.end(await self.begin(lines, endpoint, **fields))

    async def content(self, file_id):
        response = await self.ask("GET", f"/files/{file_id}/content")
        assert response.status_code == 200, response.text
        return response.content

    async def results(self, batch, which="output"):
        """The lines of one of a batch's files, in their order; none if it has no such file."""
        file_id = batch[f"{which}_file_id"]
        return [] if file_id is None else [json.loads(each) for each in (await self.content(file_id)).splitlines()]

    async def texts(self, batch):
        """What was answered, by custom id."""
        results = await self.results(batch)
        return {each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in results}


@asynccontextmanager
async def serving(model, *, clock=time.time, key=None, **settings):
    """A server of this engine with a client, which is stopped in the end."""
    chosen = Settings(**settings)
    app = assemble(model, [BatchesFrontend(model, chosen, clock=clock)], chosen)
    async with app.router.lifespan_context(app), connect(app) as http:
        yield Client(http, key)
