"""Whether a server holds on to memory: thousands of short requests, some of which are given up in the middle.

    python bench/soak.py [MODEL_DIR] [--requests 5000] [--look 500] [--json FILE]

Serves the model (a tiny one with random weights if none is named) with a prefix cache that is full after the first few
hundred requests, and asks it in 200 different beginnings and ever new ends; every tenth stream is closed after some
events. After every ``--look`` requests the server comes to rest and is asked what it holds: the process's resident
memory, MLX's active memory and the cache's size. The command fails if either memory is larger at the end than at the
first look by more than ``--tolerance``, if a request that was not given up failed, or if the engine, which checks its
books when it rests, logged anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from compare import command, free_port, table, wait_until_ready
from loadgen import words

BEGINNINGS = 200
CLOSED = 0.1
"""The share of streams that are closed."""
REST_TIMEOUT_S = 60
TIDY_S = 1.5
"""An idle server gives memory back to the system after a moment."""
METRICS = {
    "active_mb": "vllm_mlx:active_memory_bytes",
    "cache_mb": "vllm_mlx:prefix_cache_bytes",
    "entries": "vllm_mlx:prefix_cache_entries",
    "evictions": "vllm_mlx:prefix_cache_evictions_total",
}


class Running(NamedTuple):
    """The server, and what it logs to."""

    port: int
    pid: int
    log: Path


@contextmanager
def serving(model: str, folder: Path, cache_mb: int) -> Iterator[Running]:
    """Run the server with a full log of warnings."""
    port, log = free_port(), folder / "log"
    options = ["--enable-metrics", "--cache-memory-mb", str(cache_mb), "--state-dir", str(folder / "state")]
    with log.open("wb") as sink:
        process = subprocess.Popen([*command("ours", model, port), *options], stdout=subprocess.DEVNULL, stderr=sink)
    try:
        wait_until_ready(port, process)
        yield Running(port, process.pid, log)
    finally:
        process.terminate()
        process.wait(60)


async def ask(port: int, model: str, number: int, errors: list[str]) -> bool:
    """Send a request, and return whether its stream was closed before its end. Adds to ``errors`` what went wrong."""
    draw = random.Random(number)
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": words(30, draw.randrange(BEGINNINGS))},
            {"role": "user", "content": f"{number} {words(draw.randint(1, 8), number)}"},
        ],
        "max_tokens": draw.randint(1, 24),
        "stream": True,
    }
    events = draw.randint(1, 4) if draw.random() < CLOSED else None
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        errors.append(repr(error))
        return False
    try:
        writer.write(head.encode() + data)
        status = await reader.readline()
        if b" 200 " not in status:
            raise OSError((status + await reader.read(600)).decode(errors="replace"))
        last = b""
        async for line in reader:
            if line.startswith(b"data:"):
                last = line
                if events is not None:
                    events -= 1
                    if events == 0:
                        return True
        if b"[DONE]" not in last:
            raise OSError(f"a stream ended with {last!r}")
    except OSError as error:
        errors.append(str(error))
    finally:
        writer.close()
    return False


async def ask_all(port: int, model: str, numbers: range, concurrency: int, errors: list[str]) -> int:
    """Send requests, so many at a time, and return how many of their streams were closed."""
    waiting = iter(numbers)

    async def one_after_another() -> int:
        return sum([await ask(port, model, number, errors) for number in waiting])

    return sum(await asyncio.gather(*(one_after_another() for _ in range(concurrency))))


def fetch(port: int, path: str) -> str:
    """Return the body of a route."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def at_rest(server: Running) -> dict[str, Any]:
    """Wait until nothing runs, and return what the server holds. Raises SystemExit if something runs on."""
    deadline = time.monotonic() + REST_TIMEOUT_S
    while any(json.loads(fetch(server.port, "/v1/status"))[name] for name in ("num_running", "num_waiting")):
        if time.monotonic() > deadline:
            raise SystemExit("requests still run that nobody waits for")
        time.sleep(0.1)
    time.sleep(TIDY_S)
    resident = subprocess.run(["ps", "-o", "rss=", "-p", str(server.pid)], capture_output=True, text=True, check=True)
    metrics = fetch(server.port, "/metrics")
    held: dict[str, Any] = {"rss_mb": int(resident.stdout) / 1024}
    for name, metric in METRICS.items():
        found = re.search(rf"^{metric}{{[^}}]*}} (\S+)$", metrics, re.MULTILINE)
        if found is None:
            raise SystemExit(f"the server does not tell {metric}: its cache has been switched off, or has none")
        held[name] = float(found[1]) / (2**20 if name.endswith("_mb") else 1)
    return held


def soak(args: argparse.Namespace, model: str, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the server held at each look, and everything that went wrong."""
    errors: list[str] = []
    rows: list[dict[str, Any]] = []
    with serving(model, folder, args.cache_mb) as server:
        closed = 0
        started = time.perf_counter()
        for start in range(0, args.requests, args.look):
            stop = min(start + args.look, args.requests)
            closed += asyncio.run(ask_all(server.port, model, range(start, stop), args.concurrency, errors))
            rows.append({"requests": stop, "closed": closed, "s": time.perf_counter() - started} | at_rest(server))
    logged = [line for line in server.log.read_text(errors="replace").splitlines() if re.search(r"WARN|ERROR", line)]
    return rows, errors + logged


def main() -> None:
    """Measure and print; end with 1 if the server does not hold out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--look", type=int, default=500, help="requests from one look to the next")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--cache-mb", type=int, default=8)
    parser.add_argument("--tolerance", type=float, default=0.05, help="growth that is allowed (default: %(default)s)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not 0 < args.look < args.requests:
        parser.error("--look must be above 0 and below --requests")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = args.model
        if model is None:
            model = str(folder / "model")
            tiny = [sys.executable, "-m", "vllm_mlx_core.testing.tiny", "qwen3", model]
            subprocess.run(tiny, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        rows, errors = soak(args, model, folder)
    print(table(rows))
    first, last = rows[0], rows[-1]
    grown = {name: last[name] / first[name] for name in ("rss_mb", "active_mb")}
    for name, ratio in grown.items():
        print(f"{name}: {ratio:.3f} times what it was after {args.look} requests")
    print(f"{len(errors)} errors", *errors[:20], sep="\n")
    if args.json:
        args.json.write_text(json.dumps({"looks": rows, "grown": grown, "errors": errors}, indent=1))
    if errors or max(grown.values()) > 1 + args.tolerance:
        sys.exit(1)


if __name__ == "__main__":
    main()
