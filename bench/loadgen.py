#!/usr/bin/env python3
"""Load any OpenAI-compatible chat server and print one JSON line of figures. Standard library only.

    loadgen.py http://127.0.0.1:8000 MODEL --requests 32 --concurrency 16 --max-tokens 128

Streams every reply over its own HTTP/1.1 connection and reads the events as bytes, so that the client stays
cheaper than the server. Figures: ttft_ms and tpot_ms (medians over requests), gap_ms_max (longest wait between two
events of one reply, median and maximum over requests), out_tok_s (completion tokens by the server's own usage
count, over the whole wall time), ok / errors / dropped.

    --prompt-words N           length of each user message (distinct per request)
    --shared-prefix-words N    a system message that all requests share
    --drop P                   close the connection of a share P of the requests after a few events
    --extra JSON               merged into each request body
    --texts FILE               write {request index: reply text} as JSON, to compare servers or modes
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from urllib.parse import urlsplit

WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
]


def words(n: int, seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(n))


async def one(args, index: int, out: list) -> None:
    messages = []
    if args.shared_prefix_words:
        messages.append({"role": "system", "content": words(args.shared_prefix_words, 0)})
    text = f"[{args.seed}-{index}] " + words(args.prompt_words, 1000 * args.seed + index + 1)
    messages.append({"role": "user", "content": text})
    body = {
        "model": args.model,
        "messages": messages,
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if args.extra:
        body.update(json.loads(args.extra))
    data = json.dumps(body).encode()
    url = urlsplit(args.url)
    drop_after = (
        random.Random(args.seed * 7919 + index).randint(1, 8)
        if (random.Random(args.seed * 104729 + index).random() < args.drop)
        else None
    )
    auth = f"Authorization: Bearer {args.api_key}\r\n" if args.api_key else ""
    head = (
        f"POST {url.path.rstrip('/')}/v1/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n{auth}"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    ).encode()
    start = time.perf_counter()
    stamps: list[float] = []
    raw = bytearray()
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 20)
        writer.write(head + data)
        status = await reader.readline()
        if b" 200 " not in status:
            rest = await reader.read(600)
            out.append({"error": (status + rest).decode(errors="replace")[-300:]})
            writer.close()
            return
        seen = 0
        while chunk := await reader.read(1 << 16):
            raw += chunk
            count = chunk.count(b"data:")
            if count:
                stamps.append(time.perf_counter())
                seen += count
                if drop_after is not None and seen >= drop_after:
                    writer.close()
                    out.append({"dropped": True})
                    return
        writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        out.append({"error": repr(error)})
        return
    end = time.perf_counter()
    usage, pieces, finish = {}, [], None
    for line in bytes(raw).split(b"\n"):
        line = line.strip()
        if not line.startswith(b"data:") or line.endswith(b"[DONE]"):
            continue
        event = json.loads(line[5:])
        usage = event.get("usage") or usage
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            pieces.append(delta.get("content") or "")
            finish = choice.get("finish_reason") or finish
    tokens = usage.get("completion_tokens") or len([p for p in pieces if p])
    gaps = [b - a for a, b in zip(stamps, stamps[1:])]
    out.append(
        {
            "index": index,
            "ttft": (stamps[0] if stamps else end) - start,
            "e2e": end - start,
            "tokens": tokens,
            "tpot": (stamps[-1] - stamps[0]) / max(tokens - 1, 1) if len(stamps) > 1 else None,
            "gap": max(gaps) if gaps else None,
            "prompt": usage.get("prompt_tokens") or 0,
            "finish": finish,
            "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            "text": "".join(pieces),
        }
    )


async def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("url")
    p.add_argument("model")
    p.add_argument("--requests", type=int, default=16)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--prompt-words", type=int, default=30)
    p.add_argument("--shared-prefix-words", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--drop", type=float, default=0.0)
    p.add_argument("--api-key")
    p.add_argument("--extra")
    p.add_argument("--texts")
    args = p.parse_args()
    out: list[dict] = []
    gate = asyncio.Semaphore(args.concurrency)

    async def run(index: int) -> None:
        async with gate:
            await one(args, index, out)

    start = time.perf_counter()
    await asyncio.gather(*(run(i) for i in range(args.requests)))
    wall = time.perf_counter() - start
    ok = [o for o in out if "index" in o]
    errors = [o["error"] for o in out if "error" in o]

    def figure(key: str, how=statistics.median) -> float | None:
        values = [o[key] for o in ok if o.get(key) is not None]
        return round(how(values) * 1000, 2) if values else None

    if args.texts:
        with open(args.texts, "w") as file:
            json.dump({o["index"]: o["text"] for o in sorted(ok, key=lambda o: o["index"])}, file, indent=0)
    print(
        json.dumps(
            {
                "ok": len(ok),
                "errors": len(errors),
                "dropped": sum("dropped" in o for o in out),
                "wall_s": round(wall, 3),
                "out_tok_s": round(sum(o["tokens"] for o in ok) / wall, 1),
                "ttft_ms": figure("ttft"),
                "tpot_ms": figure("tpot"),
                "gap_ms_med": figure("gap"),
                "gap_ms_max": figure("gap", max),
                "prompt_tokens": sum(o["prompt"] for o in ok),
                "cached_tokens": sum(o["cached"] for o in ok),
                "finish": sorted({str(o["finish"]) for o in ok}),
                "first_error": errors[0] if errors else None,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
