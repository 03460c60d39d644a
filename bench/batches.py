"""What a batch costs the people beside it: time to a chat's first token, without a batch and with one.

``python bench/batches.py [MODEL]`` serves the model (the demonstration model if none is named) and measures, in one
run: short chats alone; the next turn of a long conversation, before and after a batch of short lines; short chats
beside a batch of long prompts. Run it with two versions in turns to compare them.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "then", "runs", "away")
CHATS = 3
ENDED = ("completed", "failed", "expired", "cancelled")


@contextmanager
def serving(model: list[str]) -> Iterator[httpx.Client]:
    """Serve in a process of its own, with a state directory of its own; yield a client."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, "-m", "vllm_mlx_core", "serve", *model, "--port", port, "--state-dir", state]
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600) as client:
                while process.poll() is None:
                    try:
                        client.get("/health")
                        break
                    except httpx.TransportError:
                        time.sleep(0.2)
                yield client
        finally:
            process.terminate()
            process.wait()


def first_token_s(client: httpx.Client, text: str) -> float:
    """Return how long a chat's first token takes."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4, "stream": True}
    began = time.perf_counter()
    first = None
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():
            if first is None and line.startswith("data: {"):
                first = time.perf_counter() - began
    if first is None:
        raise SystemExit("The chat was not answered.")
    return first


def begin(client: httpx.Client, texts: list[str], max_tokens: int) -> str:
    """Begin a batch; return its id."""
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens},
        }
        for number, text in enumerate(texts)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", content)}).json()
    order = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return str(client.post("/v1/batches", json=order).json()["id"])


def wait(client: httpx.Client, batch_id: str) -> dict[str, Any]:
    """Return a batch when it has ended."""
    while True:
        batch: dict[str, Any] = client.get(f"/v1/batches/{batch_id}").json()
        if batch["status"] in ENDED:
            return batch
        time.sleep(0.1)


def main() -> None:
    """Print seconds to the first token."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--words", type=int, default=330, help="length of a long prompt (default: %(default)s)")
    arguments = parser.parse_args()
    draw = random.Random(1)

    def text(words: int) -> str:
        return " ".join(draw.choice(WORDS) + str(draw.randrange(100)) for _ in range(words))

    def chats(client: httpx.Client, greeting: str) -> str:
        seconds = [first_token_s(client, f"{greeting} {number}") for number in range(CHATS)]
        return f"{statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s"

    with serving([arguments.model] if arguments.model else []) as client:
        first_token_s(client, "hello")
        print(f"chat alone {chats(client, 'hello')}")
        conversation = text(2 * arguments.words)
        first_token_s(client, conversation)
        print(f"next turn {first_token_s(client, conversation):.2f} s")
        wait(client, begin(client, [f"Name river {number}." for number in range(100)], 4))
        print(f"next turn after a batch of 100 short lines {first_token_s(client, conversation):.2f} s")
        batch_id = begin(client, [text(arguments.words) for _ in range(40)], 20)
        while client.get(f"/v1/batches/{batch_id}").json()["status"] == "validating":
            time.sleep(0.1)
        time.sleep(2)
        print(f"chat beside a batch of long prompts {chats(client, 'good day')}")
        client.post(f"/v1/batches/{batch_id}/cancel")


if __name__ == "__main__":
    main()
