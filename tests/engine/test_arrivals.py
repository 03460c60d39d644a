"""A request waits for what a slower place knows of its beginning, and for nothing else."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future

import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import CacheSpec, EngineSettings, Fetch, SamplingParams, Settings
from vllm_mlx_core.engine import arrivals
from vllm_mlx_core.engine.core import EngineCore
from vllm_mlx_core.engine.messages import Abort, SamplingSpec, StepResult, Submit
from vllm_mlx_core.engine.selftest import ServingMode
from vllm_mlx_core.testing import write_tiny_model


class SlowFetch(Fetch):
    def __init__(self) -> None:
        self.future: Future[None] = Future()
        self.said: list[str] = []

    def keep(self) -> None:
        self.said.append("keep")

    def cancel(self) -> None:
        self.said.append("cancel")


class SlowCache(LRUCache):
    """Fetches for prompts that begin with token 9."""

    def __init__(self) -> None:
        super().__init__(CacheSpec())
        self.fetches: list[SlowFetch] = []

    def fetch(self, tokens, *, salt="", idle=False):
        if tokens[0] != 9:
            return None
        self.fetches.append(SlowFetch())
        return self.fetches[-1]


class Server:
    """An engine that is stepped by hand."""

    def __init__(self, generator, **engine) -> None:
        self.cache = SlowCache()
        self.results: list[StepResult] = []
        self.wakes = 0
        settings = EngineSettings(**engine)
        self.core = EngineCore(generator, settings, ServingMode(), self.cache, self.results.append, wake=self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def submit(self, number: int, prompt: list[int]) -> None:
        self.core.handle(
            Submit(
                sequence_id=number,
                request_id=str(number),
                prompt=prompt,
                max_tokens=2,
                sampling=SamplingSpec(temperature=0),
            )
        )

    def run(self) -> None:
        for _ in range(50):
            if not self.core.has_work:
                return
            self.core.step()
        raise AssertionError("it never rests")

    def finished(self) -> list[int]:
        return [update.sequence_id for result in self.results for update in result.updates if update.finish]

    def admitted(self) -> list[int]:
        return [number for result in self.results for number in result.admitted]


@pytest.fixture
def server(generator):
    return Server(generator("llama"), max_num_seqs=1)


def test_a_request_waits_while_others_are_served_and_the_engine_sleeps(server):
    server.submit(1, [9, 4, 5])
    assert not server.core.has_work
    assert 0 < server.core.timeout_s <= arrivals.MAX_FETCH_S
    server.submit(2, [3, 4, 5])
    server.run()
    assert server.finished() == [2]
    assert server.results[-1].waiting == 1
    assert server.wakes == 0
    server.cache.fetches[0].future.set_result(None)
    assert server.wakes == 1
    server.run()
    assert server.finished() == [2, 1]
    assert server.cache.fetches[0].said == ["keep"]
    assert server.core.timeout_s is None


def test_a_request_keeps_its_place_in_the_queue(server):
    server.submit(1, [9, 4, 5])
    server.submit(2, [3, 4, 5])
    server.cache.fetches[0].future.set_result(None)
    server.run()
    assert server.admitted() == [1, 2]


def test_a_fetch_that_fails_is_like_one_that_found_nothing(server):
    server.submit(1, [9, 4, 5])
    server.cache.fetches[0].future.set_exception(OSError("the disk is gone"))
    server.run()
    assert server.finished() == [1]
    assert server.cache.fetches[0].said == ["keep"]


def test_a_fetch_that_takes_too_long_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr(arrivals, "MAX_FETCH_S", 0.0)
    server.submit(1, [9, 4, 5])
    assert server.core.timeout_s == 0
    server.run()
    assert server.finished() == [1]
    assert server.cache.fetches[0].said == ["cancel"]
    server.cache.fetches[0].future.set_result(None)
    server.run()
    assert server.finished() == [1]


def test_an_aborted_request_leaves_nothing_behind(server):
    server.submit(1, [9, 4, 5])
    server.core.handle(Abort([1]))
    assert server.cache.fetches[0].said == ["cancel"]
    assert not server.core.has_work
    server.cache.fetches[0].future.set_result(None)
    server.run()
    assert server.core.timeout_s is None
    server.core.rest()
    assert server.admitted() == []
    assert server.results[-1].waiting == 0


def test_the_end_of_the_engine_ends_those_that_wait(server):
    server.submit(1, [9, 4, 5])
    server.core.fail_all("stopped")
    assert server.finished() == [1]
    assert server.cache.fetches[0].said == ["cancel"]
    assert not server.core.has_work


def greedy(engine: AsyncEngine, prompt: list[int]):
    return engine.generate(prompt, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))


@pytest.mark.anyio
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen3_next", "mamba2"])
@pytest.mark.parametrize("cache", [None, "lru:max_entries=20"])
async def test_the_next_engine_goes_on_where_this_one_stopped(architecture, cache, tiny_model, tmp_path):
    folder = tiny_model(architecture)
    prompt = [i * 17 % 180 + 3 for i in range(300)]
    engine = EngineSettings(cache=cache, self_test=False)
    kept = Settings(timeout_s=240, engine=engine, plugin_options={"ssd_cache_dir": str(tmp_path)})
    cold = Settings(timeout_s=240, engine=EngineSettings(cache="off", self_test=False))
    async with AsyncEngine(folder, settings=kept) as first:
        answer = await greedy(first, prompt)
        assert answer.usage.cached_tokens == 0
    turns = [prompt, [*prompt, *answer.token_ids, 7, 8, 9]]
    async with AsyncEngine(folder, settings=cold) as without:
        expected = [(await greedy(without, turn)).token_ids for turn in turns]
    for turn, said, reused in zip(turns, expected, (256, 300), strict=True):
        async with AsyncEngine(folder, settings=kept) as second:
            again = await greedy(second, turn)
            assert again.token_ids == said
            assert reused <= again.usage.cached_tokens < len(turn)
            both = await asyncio.gather(greedy(second, turn), greedy(second, turn))
            assert [each.token_ids for each in both] == [said, said]
            stats = (await second.loaded.client.stats()).cache
            assert stats is not None
            assert stats.fetched_tokens == again.usage.cached_tokens
            assert stats.stored_bytes > 0
            assert stats.unstored_parts == 0


@pytest.mark.anyio
async def test_another_model_on_the_same_folder_starts_from_nothing(tiny_model, tmp_path):
    settings = Settings(
        timeout_s=240, engine=EngineSettings(self_test=False), plugin_options={"ssd_cache_dir": str(tmp_path / "disk")}
    )
    prompt = [i * 17 % 180 + 3 for i in range(300)]
    async with AsyncEngine(tiny_model("llama"), settings=settings) as first:
        await greedy(first, prompt)
    async with AsyncEngine(write_tiny_model("llama", tmp_path / "model", seed=5), settings=settings) as second:
        assert (await greedy(second, prompt)).usage.cached_tokens == 0


@pytest.mark.anyio
async def test_clearing_the_cache_clears_the_folder(tiny_model, tmp_path):
    settings = Settings(
        timeout_s=240, engine=EngineSettings(self_test=False), plugin_options={"ssd_cache_dir": str(tmp_path)}
    )
    async with AsyncEngine(tiny_model("llama"), settings=settings) as engine:
        await greedy(engine, [i * 17 % 180 + 3 for i in range(300)])
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("*.safetensors")):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await engine.loaded.client.clear_cache()
    assert not list(tmp_path.iterdir())
