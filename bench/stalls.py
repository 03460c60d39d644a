"""How long running streams wait while a long prompt arrives: this server, the same without a target, and mlx_lm.server.

    python bench/stalls.py MODEL_DIR [--streams 8] [--prompt-tokens 4000] [--tokens 200] [--repeats 3] [--json FILE]

All servers run and take turns. In a turn the streams start; once each has some tokens, a long prompt is sent that is
answered with one token. Printed are medians over the turns, in milliseconds: the usual gap between two events of a
stream (the median of those before the prompt was sent), the longest gap of any stream while it is read, the time to its
token, and the tokens per second, read and generated, of the whole turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from compare import QUIET, command, free_port, table, wait_until_ready
from loadgen import words

EVENTS_FIRST = 10
"""Events that every stream has before the prompt is sent."""
SERVERS: dict[str, tuple[str, Sequence[str]]] = {
    "ours": ("ours", ()),
    "no target": ("ours", ("--decode-stall-target-ms", "0")),
    "mlx_lm.server": ("theirs", ()),
}


@contextmanager
def running(name: str, model: str) -> Iterator[int]:
    """Run a server and yield its port."""
    port = free_port()
    server, more = SERVERS[name]
    process = subprocess.Popen([*command(server, model, port), *more], env=os.environ, **QUIET)  # type: ignore[call-overload]
    try:
        wait_until_ready(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(30)


async def ask(
    port: int, model: str, text: str, max_tokens: int, heard: Callable[[float], None] = lambda stamp: None
) -> int:
    """Stream a chat, tell ``heard`` when each event came, and return the tokens read and generated. Raises OSError."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"2": -100},  # the end token of most small models: streams must not end early
    }
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + data)
    total = 0
    try:
        if b" 200 " not in (status := await reader.readline()):
            raise OSError((status + await reader.read(600)).decode(errors="replace"))
        async for line in reader:
            line = line.strip()
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any((choice.get("delta") or {}).get("content") for choice in event.get("choices") or ()):
                heard(time.perf_counter())
            usage = event.get("usage") or {}
            total = usage.get("total_tokens") or total
    finally:
        writer.close()
    return total


async def turn(port: int, model: str, args: argparse.Namespace, seed: int) -> dict[str, float]:
    """Measure one server once."""
    stamps: list[list[float]] = [[] for _ in range(args.streams)]
    answered: list[float] = []
    start = time.perf_counter()
    streams = [
        asyncio.ensure_future(ask(port, model, words(20, 1000 * seed + n), args.tokens, stamps[n].append))
        for n in range(args.streams)
    ]
    while min(map(len, stamps)) < EVENTS_FIRST:
        if any(stream.done() for stream in streams):
            raise SystemExit("a stream ended before the prompt was sent: give it more --tokens")
        await asyncio.sleep(0.005)
    sent = time.perf_counter()
    total = await ask(port, model, words(args.prompt_tokens, seed), 1, answered.append)
    if not answered:
        answered.append(time.perf_counter())  # its token was no text
    total += sum(await asyncio.gather(*streams))
    wall_s = time.perf_counter() - start
    gaps = [(a, b) for each in stamps for a, b in pairwise(each)]
    usual = statistics.median(b - a for a, b in gaps if b <= sent)
    longest = max((b - a for a, b in gaps if b > sent and a < answered[0]), default=0.0)
    return {
        "usual_gap_ms": 1000 * usual,
        "longest_gap_ms": 1000 * longest,
        "in_usual_gaps": longest / usual,
        "prompt_ttft_ms": 1000 * (answered[0] - sent),
        "tok_s": total / wall_s,
    }


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Let the servers take turns and return a row for each."""
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    with ExitStack() as stack:
        ports = {name: stack.enter_context(running(name, args.model)) for name in SERVERS}
        for port in ports.values():
            asyncio.run(turn(port, args.model, args, seed=999))  # warm up
        for repeat in range(args.repeats):
            for name in sorted(ports, reverse=bool(repeat % 2)):
                turns[name].append(asyncio.run(turn(ports[name], args.model, args, seed=repeat + 1)))
    return [
        {"server": name, **{key: statistics.median(each[key] for each in made) for key in made[0]}}
        for name, made in turns.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=4000, help="words of the prompt: about a token each")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each stream")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = measure(args)
    ours, free, theirs = rows
    print(table(rows))
    print(f"longest gap, ours by theirs: {ours['longest_gap_ms'] / theirs['longest_gap_ms']:.2f}")
    print(f"tokens per second, with the target by without: {ours['tok_s'] / free['tok_s']:.2f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
