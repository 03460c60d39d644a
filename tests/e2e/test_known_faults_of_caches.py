"""Faults of other servers in what they take from their prefix caches, none of which may happen here.

Answers are made of four letters, so that they are read back as the tokens that they were written with.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from vllm_mlx_core.api import EngineSettings, LoadOptions, Settings
from vllm_mlx_core.host import Host
from vllm_mlx_core.residency.loader import load_model

from .serving import serving

Message = dict[str, Any]

WINDOW = 32
"""That of the tiny models, in tokens; a letter is one."""
WINDOWED = ["gemma3", "gpt_oss"]
RECURRENT = ["mamba2", "qwen3_next"]
CACHES = ["lru", "radix", "paged"]
LETTERS = {"logit_bias": {str(ord(letter)): 100 for letter in "abcd"}, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


@contextmanager
def server(folder: Path, cache: str) -> Iterator[httpx.Client]:
    host = Host()
    host.load([])
    settings = Settings(served_model_name="tiny", engine=EngineSettings(cache=cache, enforce_eager=True))
    with serving(host, load_model(str(folder), host, settings, LoadOptions())) as client:
        yield client


def complete(client: httpx.Client, prompt: str) -> tuple[str, int]:
    """Return the answer, and how many tokens of the prompt came from the cache."""
    answer = client.post("/completions", json={"prompt": prompt, "max_tokens": 24, **LETTERS}).raise_for_status().json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


class Turn:
    """An answer of the chat route and the numbers of its tokens."""

    def __init__(self, client: httpx.Client, messages: list[Message], **more: Any) -> None:
        body = {"messages": messages, "max_tokens": 40, **LETTERS, **more}
        answer = client.post("/chat/completions", json=body).raise_for_status().json()
        usage = answer["usage"]
        self.message: Message = answer["choices"][0]["message"]
        self.text: str = self.message["content"]
        self.prompt_tokens: int = usage["prompt_tokens"]
        self.cached_tokens: int = usage["prompt_tokens_details"]["cached_tokens"]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def wide(folder: Path, out: Path, tokens: int) -> Path:
    """Write a model again with another window."""
    shutil.copytree(folder, out)
    config = json.loads((folder / "config.json").read_text()) | {"sliding_window": tokens}
    (out / "config.json").write_text(json.dumps(config))
    return out


A = "".join(f"{number} birds came, then " for number in range(12))
EDITS = {
    "the first half again": A[: len(A) // 2] + "and it was quiet for the rest of the day",
    "an edit in the middle": A[:100] + "forty-seven foxes" + A[120:],
    "shorter than the window": A[: WINDOW - 4],
    "longer by a little": A + "it rained",
    "the same again": A,
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("architecture", WINDOWED + RECURRENT)
def test_r008_a_prompt_that_shares_a_beginning_is_answered_as_by_a_fresh_server(architecture, cache, tiny_model):
    folder = tiny_model(architecture)
    assert len(A) > 6 * WINDOW
    with server(folder, "off") as fresh, server(folder, cache) as warm:
        first = complete(warm, A)
        assert first == complete(fresh, A)
        assert first[1] == 0
        for name, prompt in EDITS.items():
            text, cached = complete(warm, prompt)
            assert text == complete(fresh, prompt)[0], name
            assert cached in (0, len(A) - 1, len(A) + 23), f"{name}: a state was cut that cannot be cut"
        assert complete(warm, A)[1] > 0, "the cache is on"


@pytest.mark.parametrize("cache", CACHES)
def test_r008_a_window_is_cut_before_it_has_wrapped_and_never_after(cache, tiny_model, tmp_path):
    """With A in the window its state goes back to any token; the answer that follows fills the window."""
    folder = wide(tiny_model("gemma3"), tmp_path / "wide", len(A) + 8)
    with server(folder, "off") as fresh, server(folder, cache) as warm:
        complete(warm, A)
        for name, prompt in EDITS.items():
            text, cached = complete(warm, prompt)
            assert text == complete(fresh, prompt)[0], name
            assert cached < len(prompt), name
        assert complete(warm, A[:150] + "and so on")[1] == 150


@pytest.mark.parametrize("architecture", WINDOWED + RECURRENT)
def test_r008_two_conversations_under_one_system_prompt_do_not_mix(architecture, tiny_model):
    folder = tiny_model(architecture)
    system = {"role": "system", "content": A}
    asked = [[system, user(f"What of the {what}?")] for what in ("birds", "foxes", "birds in the quiet of the day")]
    with server(folder, "off") as fresh, server(folder, "radix") as warm:
        turns = [Turn(warm, messages) for messages in asked]
        assert [turn.text for turn in turns] == [Turn(fresh, messages).text for messages in asked]
        end = len("?system\n") + len(A) + 1  # a token for each letter and one for each mark
        assert [turn.cached_tokens for turn in turns] == [0, end, end]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("architecture", WINDOWED + RECURRENT)
def test_r009_each_turn_reads_only_what_is_new(architecture, cache, tiny_model):
    """Turn 2 is turn 1, its answer and what the user says next: all that was read or written before is reused."""
    folder = tiny_model(architecture)
    messages: list[Message] = [{"role": "system", "content": A * 3}, user("Go on.")]
    with server(folder, "off") as fresh, server(folder, cache) as warm:
        before = 0
        for number in range(4):
            turn = Turn(warm, messages, tools=[TOOL])
            assert turn.text == Turn(fresh, messages, tools=[TOOL]).text
            assert len(turn.text) == 40
            assert turn.cached_tokens == before
            before = turn.prompt_tokens + len(turn.text) - 1  # the last token is delivered, but nobody has read it
            messages += [turn.message, user(f"And {number}?")]


@pytest.mark.parametrize("architecture", WINDOWED + RECURRENT)
def test_r009_an_agent_that_drops_its_latest_turns_reads_only_what_is_new(architecture, tiny_model):
    folder = tiny_model(architecture)
    messages: list[Message] = [{"role": "system", "content": A * 3}]
    results = [user(f"Result {number}: " + A[:150]) for number in range(4)]
    with server(folder, "off") as fresh, server(folder, "radix") as warm:
        ends = []
        for result in results:
            messages.append(result)
            turn = Turn(warm, messages, tools=[TOOL])
            ends.append(turn.prompt_tokens - len("\n?assistant\n"))  # where the result ends
            messages.append(turn.message)
        shorter = [*messages[:4], user("Let us try another way: " + A[:150])]
        turn = Turn(warm, shorter, tools=[TOOL])
        assert turn.text == Turn(fresh, shorter, tools=[TOOL]).text
        assert turn.cached_tokens == ends[1]
        rewritten = [*messages[:2], {"role": "assistant", "content": "So much for that."}, user("And now? " + A[:150])]
        turn = Turn(warm, rewritten, tools=[TOOL])
        assert turn.text == Turn(fresh, rewritten, tools=[TOOL]).text
        assert turn.cached_tokens == ends[0]
