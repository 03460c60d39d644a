"""How likely a prompt's tokens are: against one plain forward, however the prompt is cut, batched, failed or cached."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest

from vllm_mlx_core import AsyncEngine
from vllm_mlx_core.api import (
    Completion,
    ContextLengthExceeded,
    EngineFailed,
    EngineSettings,
    GenerateRequest,
    InvalidRequest,
    SamplingParams,
    Settings,
)
from vllm_mlx_core.engine import prompt_scores
from vllm_mlx_core.testing import TINY_ARCHITECTURES

pytestmark = pytest.mark.anyio

FAULTY = str(Path(__file__).parent / "plugins" / "faulty.py")
SCRIPTED = "vllm_mlx_core.testing.scripted"
TOLERANCE = 2e-3


def settings(**engine) -> Settings:
    return Settings(timeout_s=240, engine=EngineSettings(**engine))


def scored(max_tokens: int = 1, top: int = 3, **more) -> SamplingParams:
    more = {"temperature": 0, "ignore_eos": True, **more}
    return SamplingParams(max_tokens=max_tokens, prompt_logprobs=top, **more)


def tokens(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 200) for _ in range(length)]


def values(completion: Completion) -> list[float | None]:
    return [each.logprob for each in completion.prompt_logprobs]


def plain_forward(folder: Path, prompt: list[int]) -> list[list[float]]:
    """Return the log-probabilities [position, token] of what follows each token, by mlx-lm alone."""
    model, _ = mlx_lm.load(str(folder))
    logits = model(mx.array([prompt]))[0].astype(mx.float32)
    rows: list[list[float]] = (logits - mx.logsumexp(logits, axis=-1, keepdims=True)).tolist()
    return rows


def check(completion: Completion, prompt: list[int], expected: list[list[float]], top: int) -> None:
    first, *others = completion.prompt_logprobs
    assert [each.token_id for each in completion.prompt_logprobs] == prompt
    assert (first.logprob, list(first.top)) == (None, [])
    for entry, row in zip(others, expected[:-1], strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=TOLERANCE)
        best = sorted(row, reverse=True)[:top]
        assert [each.logprob for each in entry.top] == pytest.approx(best, abs=TOLERANCE)
        assert [row[each.token_id] for each in entry.top] == pytest.approx(best, abs=TOLERANCE)
        assert {each.logprob for each in entry.top if each.token_id == entry.token_id} <= {entry.logprob}, "exactly"


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
async def test_they_are_those_of_one_plain_forward_however_the_prompt_is_cut(architecture, tiny_model):
    folder = tiny_model(architecture)
    prompts = [tokens(length, seed=length) for length in (2, 5, 80)]  # the last is beyond the models' windows
    expected = [plain_forward(folder, prompt) for prompt in prompts]
    for budget in (7, 2048):
        async with AsyncEngine(folder, settings=settings(max_num_batched_tokens=budget)) as engine:
            answers = await asyncio.gather(*(engine.generate(prompt, scored()) for prompt in prompts))
        for answer, prompt, rows in zip(answers, prompts, expected, strict=True):
            check(answer, prompt, rows, top=3)
            assert answer.usage.completion_tokens == 1


@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize(("logits", "at_once"), [(288 * 16, 288 * 5), (1, 1)])
async def test_slices_of_positions_join_seamlessly(logits, at_once, top, tiny_model, monkeypatch):
    monkeypatch.setattr(prompt_scores, "MAX_LOGITS", logits)
    monkeypatch.setattr(prompt_scores, "MAX_SLICE", at_once)
    folder, prompt = tiny_model("qwen3"), tokens(60)
    async with AsyncEngine(folder, settings=settings()) as engine:
        check(await engine.generate(prompt, scored(top=top)), prompt, plain_forward(folder, prompt), top)


async def test_the_distribution_is_the_unmodified_one(tiny_model):
    bent: dict[str, Any] = {
        "temperature": 0.3,
        "top_k": 2,
        "logit_bias": {9: 50.0},
        "repetition_penalty": 1.5,
        "seed": 1,
    }
    async with AsyncEngine(tiny_model("qwen3"), settings=settings()) as engine:
        plain = await engine.generate(tokens(30), scored())
        assert values(await engine.generate(tokens(30), scored(**bent))) == values(plain)


async def test_what_is_generated_is_as_likely_as_when_it_is_read(tiny_model):
    async with AsyncEngine(tiny_model("llama"), settings=settings()) as engine:
        prompt = tokens(20)
        answer = await engine.generate(prompt, scored(8, logprobs=3))
        again = await engine.generate([*prompt, *answer.token_ids], scored(0))
    read = again.prompt_logprobs[len(prompt) :]
    for written, entry in zip(answer.logprobs, read, strict=True):
        assert written.chosen.logprob == pytest.approx(entry.logprob, abs=TOLERANCE)
        assert [each.token_id for each in written.top] == [each.token_id for each in entry.top]


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "mamba2", "llama4"])
async def test_neighbours_are_not_changed_and_change_nothing(architecture, tiny_model, until_idle):
    plain = [(tokens(length, seed=length), 10 + length % 7) for length in (1, 3, 17, 40, 75)]
    asking = [tokens(length, seed=100 + length) for length in (1, 2, 33, 90, 90)]
    greedy = [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for _, n in plain]
    async with AsyncEngine(tiny_model(architecture), settings=settings(max_num_batched_tokens=24)) as engine:
        alone = [await engine.generate(prompt, each) for (prompt, _), each in zip(plain, greedy, strict=True)]
        scored_alone = [await engine.generate(prompt, scored(4)) for prompt in asking]
        answers = await asyncio.gather(
            *(engine.generate(prompt, each) for (prompt, _), each in zip(plain, greedy, strict=True)),
            *(engine.generate(prompt, scored(n)) for prompt in asking for n in (0, 4)),
        )
        await until_idle(engine)
    crowded, scored_crowded = answers[: len(plain)], answers[len(plain) :]
    assert [each.token_ids for each in crowded] == [each.token_ids for each in alone]
    assert all(not each.prompt_logprobs for each in crowded)
    for index, answer in enumerate(scored_crowded):
        expected = scored_alone[index // 2]
        assert answer.token_ids == (expected.token_ids if index % 2 else [])
        assert values(answer)[0] is None
        assert values(answer)[1:] == pytest.approx(values(expected)[1:], abs=TOLERANCE)


@pytest.mark.parametrize("architecture", ["qwen3", "mamba2"])
async def test_the_prefix_cache_neither_shortens_nor_loses_them(architecture, tiny_model):
    prompt = tokens(64)
    ordinary = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    async with AsyncEngine(tiny_model(architecture), settings=settings()) as engine:
        first = await engine.generate(prompt, scored(4))
        reused = await engine.generate([*prompt, 7, 8], ordinary)
        assert reused.usage.cached_tokens >= len(prompt) - 1, "such a request leaves its state to others"
        for _ in range(2):
            again = await engine.generate(prompt, scored(4))
            assert values(again) == values(first)
            assert again.usage.cached_tokens == 0
        nothing = await engine.generate([*prompt, 7, 8], scored(0))
        assert values(nothing)[: len(prompt)] == pytest.approx(values(first), abs=TOLERANCE)
        assert (await engine.generate([*prompt, 7, 8], ordinary)).token_ids == reused.token_ids


async def test_each_completion_has_them_once_with_its_first_output(tiny_model):
    prompt = tokens(50)
    async with AsyncEngine(tiny_model("qwen3"), settings=settings(max_num_batched_tokens=16)) as engine:
        outputs = [each async for each in engine.outputs(prompt, scored(12, temperature=1.0, seed=3), n=3)]
    for choice in range(3):
        first, *others = (each for each in outputs if each.choice == choice)
        assert [each.token_id for each in first.prompt_logprobs] == prompt
        assert not any(each.prompt_logprobs for each in others)


@pytest.mark.parametrize("length", [1, 2, 50, 256])
async def test_nothing_may_be_generated_and_the_prompt_may_fill_the_context(length, tiny_model, until_idle):
    prompt = tokens(length)
    limits = settings(max_num_batched_tokens=32, max_model_len=256)
    async with AsyncEngine(tiny_model("qwen3"), settings=limits) as engine:
        outputs = [each async for each in engine.outputs(prompt, scored(0))]
        await until_idle(engine)
        with pytest.raises(ContextLengthExceeded):
            await engine.generate([5] * 257, scored(0))
    (output,) = outputs
    assert (output.finish, list(output.token_ids), list(output.events)) == ("length", [], [])
    assert output.usage is not None
    assert (output.usage.prompt_tokens, output.usage.completion_tokens) == (length, 0)
    assert len(output.prompt_logprobs) == length


@pytest.mark.parametrize(("sampling", "field"), [
    (SamplingParams(prompt_logprobs=21), "prompt_logprobs"),
    (SamplingParams(prompt_logprobs=-1), "prompt_logprobs"),
    (SamplingParams(prompt_logprobs=1, max_tokens=-1), "max_tokens"),
])  # fmt: skip
async def test_what_cannot_be_is_refused_by_name(sampling, field, tiny_model):
    async with AsyncEngine(tiny_model("qwen3"), settings=settings()) as engine:
        with pytest.raises(InvalidRequest) as caught:
            await engine.generate([5, 6], sampling)
    assert caught.value.param == field


async def test_the_token_that_ends_the_completion_has_its_entry():
    async with AsyncEngine("scripted", plugins=[SCRIPTED], settings=settings()) as engine:
        asked = scored(40, logprobs=1, ignore_eos=False)
        answer = await engine.generate([{"role": "user", "content": "ab🙂"}], asked)
        plain = await engine.generate("ab🙂", SamplingParams(logprobs=1, temperature=0))
    assert (answer.text, answer.finish_reason) == ("ab🙂", "stop")
    assert len(answer.logprobs) == answer.usage.completion_tokens
    assert answer.logprobs[-1].chosen.text == b"<|end|>"
    assert len(plain.logprobs) == plain.usage.completion_tokens - 1, "others have those of what is shown"
    assert b"".join(each.text for each in answer.prompt_logprobs).decode() == "<|user|>ab🙂<|assistant|>"


@pytest.fixture
async def faulty():
    limits = settings(max_num_batched_tokens=16)
    async with AsyncEngine("scripted", plugins=[SCRIPTED, FAULTY], settings=limits) as engine:
        yield engine


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("bad", ["abc☠def", "abcdefgh☢xyz", "a long enough prompt ⚡ with a fault", "abc✂def"])
@pytest.mark.parametrize("max_tokens", [1, 60])
async def test_a_fault_fails_its_own_request_only(faulty, bad, max_tokens, until_idle):
    texts = ["The quick brown fox jumps", "日本語 é", "x" * 50]
    asked = scored(60, ignore_eos=False)
    bads = [faulty.generate(chat(bad), scored(max_tokens, ignore_eos=False)) for _ in range(2)]
    answers: list[Any]
    *answers, one, two = await asyncio.gather(
        *(faulty.generate(chat(text), asked) for text in texts), *bads, return_exceptions=True
    )
    assert [each.text for each in answers] == texts
    assert all(len(each.prompt_logprobs) == each.usage.prompt_tokens for each in answers)
    if "⚡" in bad or max_tokens > 1:
        assert isinstance(one, EngineFailed)
        assert isinstance(two, EngineFailed)
    await until_idle(faulty)


async def test_what_is_computed_again_is_not_told_twice(faulty, until_idle):
    texts = ["The quick brown fox jumps over", "wait ⌛ for it", "the lazy dog and runs away from here"]
    asked = scored(80, ignore_eos=False)
    answers = await asyncio.gather(*(faulty.generate(chat(text), asked) for text in texts))
    assert [each.text for each in answers] == texts
    assert [len(each.prompt_logprobs) for each in answers] == [each.usage.prompt_tokens for each in answers]
    await until_idle(faulty)


async def test_a_request_that_is_cancelled_midway_leaves_nothing_behind(tiny_model, until_idle):
    async with AsyncEngine(tiny_model("qwen3"), settings=settings(max_num_batched_tokens=8)) as engine:
        client = engine.loaded.client
        streams = [
            await client.generate(
                GenerateRequest(request_id=str(n), model=engine.model.id, prompt=tokens(400), sampling=scored(n))
            )
            for n in (0, 1, 5)
        ]
        while not any(each.phase == "prefill" for each in client.active_requests()):
            await asyncio.sleep(0)
        for stream in streams:
            await stream.aclose()
        await until_idle(engine)
        answer = await engine.generate(tokens(30), scored(0))
        assert len(answer.prompt_logprobs) == 30
