"""What the prefix cache saves, ours against mlx_lm.server on the same model, in four parts.

    python bench/caches.py MODEL_DIR [--only conversation,burst,restart,memory] [--scale 1.0] [--json FILE]

- ``conversation``: an agent's conversation of 20 turns over a system prompt of some 2,000 tokens that lists its tools;
  each turn sends everything before it, the answer and the result of a tool. Tokens that were computed, by the servers'
  own usage, against the fewest possible, and time to the first token against that of the same prompt without a cache.
  That is measured at three turns and taken to be linear between them.
- ``burst``: 16 requests that arrive together, with a beginning of some 1,500 tokens in common and ends of 30, 32 tokens
  out; twice, so that the second time the beginning is known. Against ``--cache off``, where requests share nothing.
- ``restart``: the first turn of that conversation on a server that was stopped and started again, with a disk tier.
- ``memory``: what 20 conversations over one system prompt take in the cache of each policy, against whole states.

What the server has no option or policy for is left out with a line that says so. ``--scale`` makes all prompts shorter
or longer. Lengths are in words; SmolLM2 makes about a token of each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from compare import QUIET, command, free_port, table, wait_until_ready
from loadgen import words

Row = dict[str, Any]
Message = dict[str, str]

TURNS = 20
ANSWER_TOKENS = 24
BURST = 16
BURST_TOKENS = 32
CONVERSATIONS = 20
POLICIES = ("lru", "radix", "paged")
MEMORY_MB = "4000"
"""Enough for whole states of every conversation."""
TIMEOUT_S = 600
TRIES = 50
RETRY_S = 0.05


class Refused(Exception):
    """The server does not know an option or a name."""


@dataclass(frozen=True)
class Answer:
    """What a client saw of one answer."""

    ttft_s: float
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def computed(self) -> int:
        """Prompt tokens that did not come from the cache."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True)
class Server:
    """A running server and the model's name there."""

    port: int
    model: str

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def ask(self, messages: Sequence[Message], max_tokens: int) -> Answer:
        """Stream one answer, by the clock from the first try on. Raises SystemExit if there is none.

        mlx_lm.server resets connections when several come at once: they are tried again, as clients do.
        """
        started = time.perf_counter()
        for _ in range(TRIES):
            try:
                return await self._ask(messages, max_tokens, started)
            except (httpx.ConnectError, httpx.ReadError):
                await asyncio.sleep(RETRY_S)
        raise SystemExit(f"{self.url} does not answer")

    async def _ask(self, messages: Sequence[Message], max_tokens: int, started: float) -> Answer:
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logit_bias": {"2": -100},  # the end token of most small models: answers must not end early
        }
        first: float | None = None
        text, usage = "", dict[str, Any]()
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S) as client,
            client.stream("POST", f"{self.url}/v1/chat/completions", json=body) as response,
        ):
            if response.status_code != 200:
                raise SystemExit(f"{response.status_code}: {(await response.aread()).decode(errors='replace')}")
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                piece = "".join((choice.get("delta") or {}).get("content") or "" for choice in event["choices"])
                if piece and first is None:
                    first = time.perf_counter() - started
                text += piece
                usage = event.get("usage") or usage
        if not usage:
            raise SystemExit("a stream ended without its usage")
        return Answer(
            time.perf_counter() - started if first is None else first,
            text,
            usage["prompt_tokens"],
            (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            usage["completion_tokens"],
        )


@contextmanager
def running(server: str, model: str, *options: str) -> Iterator[Server]:
    """Run ``ours`` or ``theirs``. Raises Refused if it ends at once with these options."""
    port = free_port()
    process = subprocess.Popen([*command(server, model, port), *options], env=os.environ, **QUIET)  # type: ignore[call-overload]
    try:
        try:
            wait_until_ready(port, process)
        except SystemExit as error:
            if options and process.poll() is not None:
                raise Refused(" ".join(options)) from error
            raise
        yield Server(port, model)
    finally:
        process.terminate()
        process.wait(60)


def system(n: int, seed: int) -> Message:
    """Return a system message of about ``n`` words that lists tools, a third of them in their JSON."""
    tools = []
    for number in range(max(1, n // 300)):
        schema = {
            "type": "object",
            "properties": {"input": {"type": "string", "description": words(60, seed + number)}},
        }
        tools.append(json.dumps({"name": f"tool_{number}", "parameters": schema}))
    return {"role": "system", "content": f"[{seed}] {words(2 * n // 3, seed)}\nTools:\n" + "\n".join(tools)}


def question(n: int, seed: int) -> Message:
    """Return a user message of ``n`` words."""
    return {"role": "user", "content": f"[{seed}] {words(n, seed)}"}


async def warm_up(*servers: Server, together: int = 1) -> None:
    """Have every server compute something, so that none of its figures is that of a first time."""
    for server in servers:
        await asyncio.gather(*(server.ask([question(20, n)], 8) for n in range(together)))


async def converse(server: Server, args: argparse.Namespace) -> tuple[list[Answer], list[list[Message]]]:
    """Return the answers of a conversation and what was sent for each."""
    messages = [system(args.words(2000), 3)]
    answers, sent = [], []
    for turn in range(args.turns):
        text = words(40, 100 + turn)
        asked = f"Result of tool_{turn % 3}: {text}" if turn else f"Plan this: {text}"
        messages.append({"role": "user", "content": asked})
        sent.append(list(messages))
        answers.append(await server.ask(messages, ANSWER_TOKENS))
        messages.append({"role": "assistant", "content": answers[-1].text})
    return answers, sent


def fewest(answers: Sequence[Answer]) -> list[int]:
    """Return how many prompt tokens each turn must compute that finds all that the turn before it computed."""
    before = [0, *(each.prompt_tokens + each.completion_tokens - 1 for each in answers[:-1])]
    return [max(1, each.prompt_tokens - known) for each, known in zip(answers, before, strict=True)]


def between(known: dict[int, float], turn: int) -> float:
    """Return the value at ``turn`` on the straight lines through ``known``."""
    if turn in known:
        return known[turn]
    low, high = max(t for t in known if t < turn), min(t for t in known if t > turn)
    return known[low] + (known[high] - known[low]) * (turn - low) / (high - low)


async def conversation(args: argparse.Namespace) -> list[Row]:
    """Return a row for each turn, and one for all."""
    with ExitStack() as stack:
        ours = stack.enter_context(running("ours", args.model))
        theirs = stack.enter_context(running("theirs", args.model))
        cold = stack.enter_context(running("ours", args.model, "--cache", "off"))
        await warm_up(ours, theirs, cold)
        our_answers, sent = await converse(ours, args)
        their_answers, _ = await converse(theirs, args)
        turns = sorted({0, len(sent) // 2, len(sent) - 1})
        cold_s = {turn: (await cold.ask(sent[turn], 1)).ttft_s for turn in turns}
    rows: list[Row] = []
    for turn, (mine, other, least) in enumerate(zip(our_answers, their_answers, fewest(our_answers), strict=True)):
        rows.append(
            {
                "turn": turn + 1,
                "prompt": mine.prompt_tokens,
                "fewest": least,
                "ours": mine.computed,
                "theirs": other.computed,
                "ours_ttft_ms": 1000 * mine.ttft_s,
                "theirs_ttft_ms": 1000 * other.ttft_s,
                "cold_ttft_ms": 1000 * between(cold_s, turn),
                "ours_of_cold": mine.ttft_s / between(cold_s, turn),
                "theirs_of_cold": other.ttft_s / between(cold_s, turn),
            }
        )
    print(table(rows))
    later = rows[1:]
    for name in ("ours", "theirs"):
        ratios = [row[f"{name}_of_cold"] for row in later]
        computed = sum(row[name] for row in rows)
        print(
            f"{name}: {computed} prompt tokens computed ({computed / sum(row['fewest'] for row in rows):.2f} of the "
            f"fewest), later turns' first token {statistics.median(ratios):.1%} of cold, at most {max(ratios):.1%}"
        )
    return rows


async def burst(args: argparse.Namespace) -> list[Row]:
    """Return a row for each server and time."""
    beginning = system(args.words(1500), 5)
    rows: list[Row] = []
    runs: tuple[tuple[str, str, Sequence[str]], ...] = (
        ("ours", "ours", ()),
        ("cache off", "ours", ("--cache", "off")),
        ("theirs", "theirs", ()),
    )
    for name, server, options in runs:
        with running(server, args.model, *options) as asked:
            await warm_up(asked, together=BURST)
            for time_asked in ("first", "second"):
                if (name, time_asked) == ("cache off", "second"):
                    continue  # it would be the first once more
                seed = 1000 if time_asked == "first" else 2000
                started = time.perf_counter()
                answers = await asyncio.gather(
                    *(asked.ask([beginning, question(30, seed + n)], BURST_TOKENS) for n in range(BURST))
                )
                wall_s = time.perf_counter() - started
                rows.append(
                    {
                        "server": name,
                        "time": time_asked,
                        "wall_s": wall_s,
                        "requests_s": BURST / wall_s,
                        "prompt": sum(each.prompt_tokens for each in answers),
                        "computed": sum(each.computed for each in answers),
                        "ttft_ms": 1000 * statistics.median(each.ttft_s for each in answers),
                    }
                )
    print(table(rows))
    off = next(row["wall_s"] for row in rows if row["server"] == "cache off")
    for row in rows:
        print(f"{row['server']}, {row['time']}: {off / row['wall_s']:.2f} times the requests per second of cache off")
    return rows


async def restart(args: argparse.Namespace) -> list[Row]:
    """Return one row."""
    messages = [system(args.words(2000), 7), question(30, 7)]
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            with running("ours", args.model, "--ssd-cache-dir", folder) as server:
                await warm_up(server)
                answers.append(await server.ask(messages, 2))
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        disk_mb = sum(file.stat().st_size for file in files) / 2**20
    cold, warm = answers
    row: Row = {
        "prompt": cold.prompt_tokens,
        "cold_ttft_ms": 1000 * cold.ttft_s,
        "restarted_ttft_ms": 1000 * warm.ttft_s,
        "of_cold": warm.ttft_s / cold.ttft_s,
        "computed": warm.computed,
        "disk_mb": disk_mb,
    }
    print(table([row]))
    return [row]


async def memory(args: argparse.Namespace) -> list[Row]:
    """Return a row for each policy."""
    beginning = system(args.words(900), 9)
    rows: list[Row] = []
    for policy in POLICIES:
        try:
            with running("ours", args.model, "--cache", policy, "--cache-memory-mb", MEMORY_MB) as server:
                for n in range(CONVERSATIONS):
                    await server.ask([beginning, question(30, 3000 + n)], 4)
                cache = httpx.get(f"{server.url}/v1/cache/stats", timeout=TIMEOUT_S).json()["cache"]
        except Refused as error:
            print(f"left out, as the server refuses it: {error}")
            continue
        rows.append(
            {key: cache[key] for key in ("type", "entries", "memory_mb", "evictions")}
            | {"of_whole": cache["memory_mb"] / (rows[0]["memory_mb"] if rows else cache["memory_mb"])}
        )
    print(table(rows))
    return rows


PARTS: dict[str, Callable[[argparse.Namespace], Coroutine[Any, Any, list[Row]]]] = {
    "conversation": conversation,
    "burst": burst,
    "restart": restart,
    "memory": memory,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--only", metavar="PART,…", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="of the prompts' lengths (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="of the conversation (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.words = lambda n: max(1, round(n * args.scale))
    chosen = args.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    if args.turns < 2:
        parser.error("a conversation has at least two turns")
    measured: dict[str, list[Row]] = {}
    for name in chosen:
        started = time.perf_counter()
        print(f"\n{name}\n")
        try:
            measured[name] = asyncio.run(PARTS[name](args))
        except Refused as error:
            print(f"left out, as the server refuses it: {error}")
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
