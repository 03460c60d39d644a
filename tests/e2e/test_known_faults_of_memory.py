"""Faults of memory that are known from servers of this kind, by name: what the server does instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from vllm_mlx_core.api import EngineSettings, LoadOptions, Settings
from vllm_mlx_core.engine import device
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model
from vllm_mlx_core.testing.tiny import write_tiny_model

from .dialects import DIALECTS, EVERY_DIALECT, Dialect
from .serving import serving

CHAT = DIALECTS[0]
MIB = 1 << 20
CACHE_BYTES = MIB
BUDGET = 64 * MIB
LONG = "word " * 30_000
"""Far more tokens than the memory holds, and fewer than the context."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A tiny model that was taught a long context, in little memory."""
    host = Host()
    host.load([])
    folder: Path = write_tiny_model("llama", tmp_path_factory.mktemp("memory") / "llama")
    config = folder / "config.json"
    config.write_text(
        config.read_text().replace('"max_position_embeddings": 4096', '"max_position_embeddings": 1000000')
    )
    engine = EngineSettings(
        self_test=False,
        enforce_eager=True,
        max_num_batched_tokens=128,
        cache="radix",
        cache_memory_bytes=CACHE_BYTES,
        memory_share=BUDGET / device.capacity(),
    )
    model = load_model(str(folder), host, Settings(served_model_name="scripted", engine=engine), LoadOptions())
    with serving(host, model, path="") as client:
        yield client


def asked(dialect: Dialect, text: str, **fields: Any) -> dict[str, Any]:
    return dialect.body(text, **dialect.option(dialect.limit, 8), **fields)


@EVERY_DIALECT
def test_r016_a_request_that_no_memory_holds_is_refused_in_the_words_of_its_protocol(client, dialect):
    for stream in (False, True):
        answer = client.post(dialect.path, json=asked(dialect, LONG, stream=stream))
        assert answer.status_code == 503, answer.text
        assert "memory" in dialect.message(answer.json())
        assert "retry-after" not in answer.headers, "it would not fit later either"
        if dialect.name in ("openai", "responses"):
            assert answer.json()["error"]["code"] == "insufficient_memory"
    answer = client.post(dialect.path, json=asked(dialect, "Hello", stream=False))
    assert answer.status_code == 200, answer.text
    assert dialect.whole(answer.json()).finish in (dialect.too_long, dialect.natural)


@EVERY_DIALECT
def test_r016_what_is_longer_than_the_context_is_a_mistake_of_the_request(client, dialect):
    answer = client.post(dialect.path, json=asked(dialect, "word " * 1_200_000))
    assert answer.status_code == 400, answer.text
    assert "1000000" in dialect.message(answer.json())


def test_r016_many_different_prompts_do_not_make_the_server_grow(client):
    for number in range(40):
        said = client.post(CHAT.path, json=asked(CHAT, f"{number} " * 100))
        assert said.status_code == 200, said.text
        cache = client.get("/v1/cache/stats").json()["cache"]
        assert cache["memory_mb"] <= CACHE_BYTES / MIB
    assert cache["evictions"] > 0
