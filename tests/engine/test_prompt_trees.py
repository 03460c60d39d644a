"""Random trees of prompts, with every kind of layer and every policy: reuse never changes an answer, the books agree.

The requests of one example share beginnings, are edited in the middle, cut short and repeated; they overlap, some are
left midway, and the cache is so small that it evicts, or is cleared in between. All examples of a policy meet in one
engine, so that each finds what the ones before it have left behind.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import EngineSettings, SamplingParams, Settings

CHECKED = str(Path(__file__).parent / "plugins" / "checked_cache.py")
POLICIES = ["radix", "lru", "lru:max_entries=5", "paged:block_size=16", "disk:dir=DIR,over=radix"]
ARCHITECTURES = ["llama", "gemma3", "mamba2", "qwen3_next", "falcon_h1", "llama4", "deepseek_v32"]
TRUNK = [p * p % 180 + 3 for p in range(120)]


@dataclass(frozen=True)
class Asked:
    """One request: its prompt, and how it goes. ``pause`` is in turns of the event loop."""

    prompt: tuple[int, ...]
    max_tokens: int
    pause: int
    leaves: bool
    clears: bool


@st.composite
def trees(draw) -> list[Asked]:
    prompts: list[list[int]] = [TRUNK[: draw(st.integers(20, 120))]]
    for _ in range(draw(st.integers(3, 8))):
        base = draw(st.sampled_from(prompts))
        kind = draw(st.sampled_from(["longer", "edited", "shorter", "again", "other"]))
        at = draw(st.integers(1, len(base)))
        end = [draw(st.integers(3, 199))] * draw(st.integers(1, 40))
        prompts.append(
            {
                "longer": base + end,
                "edited": [*base[: at - 1], 3 + (base[at - 1] + 1) % 190, *base[at:]],
                "shorter": base[:at],
                "again": base,
                "other": end,
            }[kind]
        )
    return [
        Asked(
            tuple(prompt),
            max_tokens=draw(st.sampled_from([1, 2, 9, 30])),
            pause=draw(st.sampled_from([0, 0, 0, 3, 30])),
            leaves=draw(st.integers(0, 5)) == 0,
            clears=draw(st.integers(0, 12)) == 0,
        )
        for prompt in prompts
    ]


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)


async def ask(engine: AsyncEngine, asked: Asked, delay: int) -> list[int]:
    """Return the answer, or what there was of it after one step."""
    for _ in range(delay):
        await asyncio.sleep(0.0005)
    if asked.clears:
        await engine.loaded.client.clear_cache()
    tokens: list[int] = []
    outputs = engine.outputs(list(asked.prompt), greedy(asked.max_tokens))
    async for output in outputs:
        tokens += output.token_ids
        if asked.leaves:
            break
    await outputs.aclose()
    return tokens


class Engines:
    """One engine that reuses and one that never does, on an event loop of their own."""

    def __init__(self, path: Path, policy: str, *, max_bytes: int) -> None:
        self._loop = asyncio.new_event_loop()
        reusing = EngineSettings(
            cache=f"checked:over={policy}", cache_memory_bytes=max_bytes, max_num_batched_tokens=48, max_num_seqs=4
        )
        self._reusing = AsyncEngine(path, plugins=[CHECKED], settings=Settings(timeout_s=240, engine=reusing))
        plain = EngineSettings(cache="off", max_num_seqs=1)
        self._plain = AsyncEngine(path, settings=Settings(timeout_s=240, engine=plain))
        self._answers: dict[tuple[int, ...], list[int]] = {}
        for engine in (self._reusing, self._plain):
            self._loop.run_until_complete(engine.start())

    def run(self, asked: list[Asked]) -> list[list[int]]:
        async def together() -> list[list[int]]:
            delays = [sum(each.pause for each in asked[: n + 1]) for n in range(len(asked))]
            answers = await asyncio.gather(
                *(ask(self._reusing, each, d) for each, d in zip(asked, delays, strict=True))
            )
            async with asyncio.timeout(30):
                while (await self._reusing.loaded.client.stats()).running:
                    await asyncio.sleep(0.001)
            return answers

        return self._loop.run_until_complete(together())

    def expected(self, asked: Asked) -> list[int]:
        """Return what an engine says that has nothing to reuse."""
        if asked.prompt not in self._answers:
            answer = self._loop.run_until_complete(self._plain.generate(list(asked.prompt), greedy(30)))
            self._answers[asked.prompt] = answer.token_ids
        return self._answers[asked.prompt][: asked.max_tokens]

    def saved_tokens(self) -> int:
        stats = self._loop.run_until_complete(self._reusing.loaded.client.stats())
        assert stats.cache is not None
        return stats.cache.saved_tokens

    def close(self) -> None:
        for engine in (self._reusing, self._plain):
            self._loop.run_until_complete(engine.aclose())
        self._loop.close()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_reuse_never_changes_an_answer(architecture, policy, tiny_model, tmp_path, caplog):
    max_bytes = 600_000 if architecture == "llama4" else 150_000  # its chunks are big even when they are empty
    engines = Engines(tiny_model(architecture), policy.replace("DIR", str(tmp_path)), max_bytes=max_bytes)

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(trees())
    def check(asked: list[Asked]) -> None:
        for each, answer in zip(asked, engines.run(asked), strict=True):
            expected = engines.expected(each)
            assert answer == (expected[: len(answer)] if each.leaves else expected), each

    try:
        with caplog.at_level(logging.WARNING):
            check()
        assert engines.saved_tokens(), "nothing was reused"
    finally:
        engines.close()
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR], "the policy failed"
