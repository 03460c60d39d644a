"""Compare this project's attention with MLX's on the CPU: microseconds a call, in decode and prefill shapes.

    python bench/attention.py

Both take turns in one process; printed are the medians and the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

from vllm_mlx_core.engine import device

device.prepare()

import mlx.core as mx  # noqa: E402  (the BLAS library must be loaded first)

from vllm_mlx_core.engine.cpu_attention import attention  # noqa: E402

mlx_attention = mx.fast.scaled_dot_product_attention
REPEATS = 40
SHAPES = [
    # rows, heads, kv_heads, length, positions, width
    (1, 9, 3, 1, 512, 64),
    (16, 4, 2, 1, 256, 16),
    (16, 9, 3, 1, 256, 64),
    (16, 9, 3, 1, 2048, 64),
    (1, 9, 3, 512, 512, 64),
    (16, 9, 3, 128, 256, 64),
]


def seconds(call: Callable[[], mx.array]) -> float:
    """Return how long a call and its evaluation take."""
    start = time.perf_counter()
    mx.eval(call())
    return time.perf_counter() - start


def main() -> None:
    """Measure and print a row per shape."""
    print("| rows, heads, kv heads, length, positions, width | ours, µs | MLX, µs | ratio |")
    print("| --- | --- | --- | --- |")
    for rows, heads, kv_heads, length, positions, width in SHAPES:
        queries = mx.random.normal((rows, heads, length, width))
        keys = mx.random.normal((rows, kv_heads, positions, width))
        columns = mx.arange(positions)
        mask = (mx.arange(positions - length, positions)[:, None] >= columns) & (columns >= mx.zeros((rows, 1, 1, 1)))
        mx.eval(queries, keys, mask)
        calls = [
            partial(function, queries, keys, keys, scale=width**-0.5, mask=mask)
            for function in (attention, mlx_attention)
        ]
        turns = [[seconds(call) for call in calls] for _ in range(REPEATS)]
        ours, mlx = (statistics.median(times) * 1e6 for times in zip(*turns, strict=True))
        ratio = statistics.median(theirs / own for own, theirs in turns)
        print(f"| {rows}, {heads}, {kv_heads}, {length}, {positions}, {width} | {ours:.0f} | {mlx:.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
