#!/usr/bin/env python3
"""What the model alone can do: decode steps per second with no server and no scheduler, the limit to measure against.

    limit.py MODEL_DIR 1,8,16,32

For each batch size prints tokens per second of (a) forward + argmax, pipelined one step ahead, and (b) mlx-lm's own
BatchGenerator. Run it in the same environment, on the same idle machine and with the same BLAS as the server.
"""

import sys
import time

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache

STEPS, PROMPT = 200, 64


def forward_only(model, batch: int) -> float:
    caches = [make_prompt_cache(model) for _ in range(batch)]
    cache = [layer[0].merge(list(layer)) for layer in zip(*caches)] if batch > 1 else caches[0]
    prompt = mx.random.randint(3, 200, (batch, PROMPT))
    token = mx.argmax(model(prompt, cache=cache)[:, -1], -1)
    mx.eval(token)
    start = time.perf_counter()
    for _ in range(STEPS):
        following = mx.argmax(model(token[:, None], cache=cache)[:, -1], -1)
        mx.async_eval(following)
        token.tolist()
        token = following
    return batch * STEPS / (time.perf_counter() - start)


def batch_generator(model, batch: int) -> float:
    generator = BatchGenerator(model, max_tokens=STEPS, completion_batch_size=batch, prefill_batch_size=batch)
    generator.insert([mx.random.randint(3, 200, (PROMPT,)).tolist() for _ in range(batch)])
    start, count = None, 0
    while True:
        prompts, tokens = generator.next()
        if not prompts and not tokens:
            return count / (time.perf_counter() - start)
        if tokens and start is None:
            start = time.perf_counter()
        elif tokens:
            count += len(tokens)


def main() -> None:
    model, _ = load(sys.argv[1])
    for batch in map(int, sys.argv[2].split(",")):
        print(
            f"batch {batch}: forward_only {forward_only(model, batch):.0f} tok/s, "
            f"mlx_lm_batch_generator {batch_generator(model, batch):.0f} tok/s"
        )


main()
