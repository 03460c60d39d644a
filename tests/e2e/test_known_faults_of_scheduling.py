"""Faults of other servers in who is served when, none of which may happen here."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from vllm_mlx_core.api import EngineSettings, LoadOptions, Settings
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model

from .serving import serving

pytestmark = pytest.mark.anyio
CHUNK = 64
LONG = [p * p % 180 + 3 for p in range(100 * CHUNK)]


@pytest.fixture
def url(tiny_model, tmp_path):
    host = Host()
    host.load([])
    engine = EngineSettings(max_num_batched_tokens=CHUNK, max_num_seqs=6, cache="off", enforce_eager=True)
    settings = replace(Settings(timeout_s=240), served_model_name="tiny", engine=engine)
    folder = shutil.copytree(tiny_model("llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 40_000}
    (folder / "config.json").write_text(json.dumps(config))
    with serving(host, load_model(str(folder), host, settings, LoadOptions())) as client:
        yield str(client.base_url)


async def complete(client: httpx.AsyncClient, prompt: list[int], max_tokens: int, told: Callable[[], Any]) -> int:
    """Ask for a completion, call ``told`` for each piece of it, and return the number of its tokens."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tokens = 0
    async with client.stream("POST", "completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                if event.get("usage"):
                    tokens = event["usage"]["completion_tokens"]
                if event["choices"]:
                    told()
    return tokens


async def test_r089_a_long_prompt_and_running_streams_do_not_starve_each_other(url):
    """r089: a long prompt starves decode, or steady decode starves the queue."""
    pieces = [0] * 4
    order: list[int] = []

    def heard(number: int) -> Callable[[], None]:
        def note() -> None:
            pieces[number] += 1

        return note

    async with httpx.AsyncClient(base_url=url, timeout=240) as client:
        streams = [asyncio.ensure_future(complete(client, [5, 6, n], 20_000, heard(n - 7))) for n in range(7, 11)]
        async with asyncio.timeout(60):
            while not all(pieces):
                await asyncio.sleep(0.01)
        before = list(pieces)
        assert await complete(client, LONG, 1, lambda: None) == 1, "it was not read to its end"
        assert not any(stream.done() for stream in streams), "they ended too early for the test"
        # Its hundred chunks were read between their steps. What is written at once counts as one piece, at most sixty
        # times a second.
        assert min(now - then for now, then in zip(pieces, before, strict=True)) >= 3

        async def short(number: int) -> None:
            assert await complete(client, [9, number], 5, lambda: None) == 5
            order.append(number)

        flood = []
        for number in range(20, 32):
            flood.append(asyncio.ensure_future(short(number)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*flood)
        assert not any(stream.done() for stream in streams), "they ended too early for the test"
        # Two places are left: nobody is passed by more than who is served beside him.
        assert all(abs(order.index(number) - (number - 20)) <= 2 for number in order)
        for stream in streams:
            stream.cancel()
