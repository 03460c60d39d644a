"""Prompts that are expected: what they have in common with every real one is read before anybody asks.

The beginning of an entry is found by rendering it twice, each time with another question at its end. The tokens up to
the first that differs are those of every such conversation, whatever is asked. They are read as a prompt of their own,
so that the cache holds a state of exactly this length, which models need whose states cannot be cut.

Entries are read one after another, so that one finds what an earlier one has in common with it, and at idle priority:
whoever asks meanwhile goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import msgspec

from vllm_mlx_core.api import (
    IDLE_PRIORITY,
    Chat,
    EngineFailed,
    GenerateRequest,
    InvalidRequest,
    Overloaded,
    RequestError,
    SamplingParams,
    WarmUpStats,
    common_prefix,
    pack_tokens,
)
from vllm_mlx_core.engine.client import ModelClient

from .choices import MIN_REUSED_TOKENS

log = logging.getLogger(__name__)

QUESTIONS = ("When?", "3 + 4")
"""What is asked instead of a real question. They differ from the first character on, and in its kind."""
NO_TIMEOUT_S = float(365 * 24 * 3600)
"""Idle work waits for as long as anybody else is served."""
RETRY_S = 1.0
"""How long to wait when the queue is full."""


class WarmUp:
    """Keeps the prompts of ``Settings.warm_prompts`` in one model's prefix cache. Event-loop thread only."""

    def __init__(self, client: ModelClient) -> None:
        self._client = client
        self._prompts = client.settings.warm_prompts
        self._task: asyncio.Task[None] | None = None
        self._stats: WarmUpStats = WarmUpStats(
            running=False, entries=len(self._prompts), warmed=0, failed=0, tokens=0, elapsed_s=0.0
        )

    def start(self) -> None:
        """Read all prompts in the background; what a start before this one has not read yet is left to this one.

        Nothing that goes wrong with a prompt is raised; it is logged as a warning that names the entry. Mutates.
        """
        if self._task is not None:
            self._task.cancel()
        self._stats = msgspec.structs.replace(self._stats, running=True, warmed=0, failed=0, tokens=0, elapsed_s=0.0)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="warm-up")

    async def stop(self) -> None:
        """End the reading, if it still goes on. Mutates; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def stats(self) -> WarmUpStats:
        """Return how far the latest reading is."""
        return self._stats

    def _note(self, started: float, **changed: int) -> None:
        self._stats = msgspec.structs.replace(self._stats, elapsed_s=time.monotonic() - started, **changed)

    async def _run(self) -> None:
        started = time.monotonic()
        try:
            await self._read_all(started)
        except RequestError as error:
            log.warning("--warm-prompts: no more is read: %s", error.message)
        except Exception:  # it must not be lost with the task
            log.exception("--warm-prompts: no more is read")
        stats = self._stats
        self._note(started, running=False, failed=stats.entries - stats.warmed)
        log.info(
            "Warmed %d of %d prompts: %d tokens in %d ms",
            *(stats.warmed, stats.entries, stats.tokens, 1000 * self._stats.elapsed_s),
        )

    async def _read_all(self, started: float) -> None:
        """Read what can be read. Raises EngineFailed."""
        if (await self._client.stats()).cache is None:
            log.warning("--warm-prompts: no prefix cache is at work with this model, so nothing is read")
            return
        for number, chat in enumerate(self._prompts, 1):
            try:
                tokens = await self._beginning(chat)
                await self._read(number, tokens)
            except EngineFailed:
                raise
            except RequestError as error:
                log.warning("--warm-prompts: entry %d is left out: %s", number, error.message)
                self._note(started, failed=self._stats.failed + 1)
            else:
                self._note(started, warmed=self._stats.warmed + 1, tokens=self._stats.tokens + len(tokens))

    async def _beginning(self, chat: Chat) -> Sequence[int]:
        """Return the tokens that every conversation has that begins so. Raises RequestError."""
        first, second = [await self._rendered(_asked(chat, question)) for question in QUESTIONS]
        common = common_prefix(pack_tokens(first), pack_tokens(second))
        if common < MIN_REUSED_TOKENS:
            raise InvalidRequest(
                f"conversations that begin so have {common} tokens in common, and fewer than {MIN_REUSED_TOKENS} "
                "are not reused."
            )
        return first[:common]

    async def _rendered(self, chat: Chat) -> Sequence[int]:
        request = GenerateRequest(request_id="warm", model=self._client.info.id, prompt=chat)
        return (await self._client.render(request)).token_ids

    async def _read(self, number: int, tokens: Sequence[int]) -> None:
        """Have a beginning read and kept. Raises RequestError.

        One token is generated, since the state of the whole prompt exists only when its last token is read too.
        """
        request = GenerateRequest(
            request_id=f"warm-{number}",
            model=self._client.info.id,
            prompt=tokens,
            sampling=SamplingParams(max_tokens=1, temperature=0),
            priority=IDLE_PRIORITY,
            expected=True,
            timeout_s=NO_TIMEOUT_S,
        )
        while True:
            try:
                stream = await self._client.generate(request)
            except Overloaded:
                await asyncio.sleep(RETRY_S)
            else:
                break
        async with contextlib.aclosing(stream):
            async for _ in stream:
                pass  # what is said does not matter, only that it was read


def _asked(chat: Chat, question: str) -> Chat:
    """Return the conversation with a question at its end: in place of the one that stands there, if one does."""
    messages = list(chat.messages)
    if messages[-1].get("role") == "user":
        messages[-1] = {**messages[-1], "content": question}
    else:
        messages.append({"role": "user", "content": question})
    return msgspec.structs.replace(chat, messages=messages)
