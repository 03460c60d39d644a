"""Faults of memory that are known from servers of this kind, by name: what the server does instead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from vllm_mlx_core.api import EngineSettings, LoadOptions, ModelError, Settings
from vllm_mlx_core.engine import device
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model
from vllm_mlx_core.testing import _tiny_configs
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


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose heads are wide enough to be quantised."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_tiny_configs.CONFIGS, "llama", {**_tiny_configs.CONFIGS["llama"], "head_dim": 64})
        return write_tiny_model("llama", tmp_path_factory.mktemp("wide") / "llama")


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


@pytest.mark.parametrize("cache", ["radix", "off"])
def test_r088_quantised_keys_and_values_go_with_batches_cuts_and_the_prefix_cache(cache, wide_model):
    """Two turns, several at once, from the cache or not: what a client reads is the same."""
    host = Host()
    host.load([])
    said: list[list[str]] = []
    for policy in (cache, "off"):
        engine = EngineSettings(kv_bits=8, cache=policy)
        model = load_model(str(wide_model), host, Settings(served_model_name="scripted", engine=engine), LoadOptions())
        with serving(host, model, path="") as client, ThreadPoolExecutor(4) as pool:
            turns: list[list[dict[str, Any]]] = [
                [{"role": "user", "content": f"{number} " + "needle " * 40}] for number in range(4)
            ]
            for _ in range(2):
                bodies = [CHAT.body(turn, max_tokens=12, temperature=0) for turn in turns]
                answers = [each.json() for each in pool.map(lambda body: client.post(CHAT.path, json=body), bodies)]
                texts = [CHAT.whole(answer).text for answer in answers]
                said.append(texts)
                for turn, text in zip(turns, texts, strict=True):
                    turn += [{"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
            reused = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
            assert all(reused) if policy == "radix" else not any(reused)
    assert said[:2] == said[2:]


def test_r088_a_model_whose_states_cannot_be_quantised_is_refused_at_the_start(tmp_path):
    host = Host()
    host.load([])
    folder = write_tiny_model("llama", tmp_path / "llama")
    with pytest.raises(ModelError, match="16 wide"):
        load_model(str(folder), host, Settings(engine=EngineSettings(kv_bits=8)), LoadOptions())


def test_r016_many_different_prompts_do_not_make_the_server_grow(client):
    for number in range(40):
        said = client.post(CHAT.path, json=asked(CHAT, f"{number} " * 100))
        assert said.status_code == 200, said.text
        cache = client.get("/v1/cache/stats").json()["cache"]
        assert cache["memory_mb"] <= CACHE_BYTES / MIB
    assert cache["evictions"] > 0
