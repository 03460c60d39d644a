"""Compare this server with mlx_lm.server on one model, and both with what the model alone can do.

    python bench/compare.py MODEL_DIR [--concurrency 1,16] [--max-tokens 128] [--repeats 5] [--json FILE]

Starts one server after the other on an idle machine, alternating so that a drift of the machine's speed hits both
alike, drives each with ``loadgen.py``, and prints medians and their ratio. The ceiling is ``limit.py``'s forward_only:
the model's forward pass and argmax with no server at all. ``--startup`` measures process start to ready instead,
against ``python -c "import mlx_lm, fastapi, uvicorn"``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
READY_TIMEOUT_S = 120
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
IMPORTS = "import mlx_lm, fastapi, uvicorn"


def command(server: str, model: str, port: int) -> list[str]:
    """Return the command line that serves ``model``."""
    if server == "ours":
        return [sys.executable, "-m", "vllm_mlx_core", "serve", model, "--port", str(port), "--log-level", "warning"]
    wrapper = str(HERE / "mlx_lm_server.py")
    return [sys.executable, wrapper, "--model", model, "--port", str(port), "--log-level", "ERROR"]


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait for /health to answer 200."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    raise SystemExit("the server did not become ready")


@contextmanager
def running(server: str, model: str) -> Iterator[int]:
    """Run a server and yield its port."""
    port = free_port()
    process = subprocess.Popen(command(server, model, port), **QUIET)  # type: ignore[call-overload]
    try:
        wait_until_ready(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def load(port: int, model: str, concurrency: int, requests: int, max_tokens: int, seed: int) -> dict[str, Any]:
    """Drive a server and return the load generator's figures."""
    done = subprocess.run(
        [
            sys.executable, str(HERE / "loadgen.py"), f"http://127.0.0.1:{port}", model, "--requests", str(requests),
            "--concurrency", str(concurrency), "--max-tokens", str(max_tokens), "--seed", str(seed),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    figures: dict[str, Any] = json.loads(done.stdout)
    if figures["errors"] or figures["ok"] != requests:
        raise SystemExit(f"errors under load: {figures}")
    return figures


def ceiling(model: str, batches: Sequence[int]) -> dict[int, float]:
    """Return forward_only tokens per second by batch size."""
    code = "from vllm_mlx_core.engine import device; device.prepare(); import runpy; runpy.run_path({!r}, run_name='x')"
    script = code.format(str(HERE / "limit.py"))
    done = subprocess.run(
        [sys.executable, "-c", script, model, ",".join(map(str, batches))], check=True, capture_output=True, text=True
    )
    found = re.findall(r"batch (\d+): forward_only (\d+)", done.stdout)
    return {int(batch): float(rate) for batch, rate in found}


def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure everything and return a row per concurrency."""
    levels = [int(level) for level in args.concurrency.split(",")]
    measured: dict[tuple[str, int], list[dict[str, Any]]] = {}
    ceilings: dict[int, list[float]] = {level: [] for level in levels}
    for repeat in range(args.repeats):
        for level, rate in ceiling(args.model, levels).items():
            ceilings[level].append(rate)
        for server in ("ours", "theirs") if repeat % 2 == 0 else ("theirs", "ours"):
            with running(server, args.model) as port:
                load(port, args.model, max(levels), 2 * max(levels), 16, seed=999)  # warm up
                for level in levels:
                    requests = args.requests or max(16, 4 * level)
                    figures = load(port, args.model, level, requests, args.max_tokens, seed=repeat + 1)
                    measured.setdefault((server, level), []).append(figures)
    rows = []
    for level in levels:
        row: dict[str, Any] = {"streams": level, "forward_only": statistics.median(ceilings[level])}
        for server in ("ours", "theirs"):
            runs = measured[server, level]
            for key in ("out_tok_s", "ttft_ms", "tpot_ms", "gap_ms_max"):
                row[f"{server}_{key}"] = statistics.median(run[key] for run in runs)
        row["ratio"] = row["ours_out_tok_s"] / row["theirs_out_tok_s"]
        row["of_ceiling"] = row["ours_out_tok_s"] / row["forward_only"]
        rows.append(row)
    return rows


def startup(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure start to ready against importing the libraries, in turn."""
    ready, imports = [], []
    for _ in range(args.repeats + 1):
        start = time.perf_counter()
        with running("ours", args.model):
            ready.append(time.perf_counter() - start)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", IMPORTS], check=True, **QUIET)  # type: ignore[call-overload]
        imports.append(time.perf_counter() - start)
    figures = {"ready_s": statistics.median(ready[1:]), "imports_s": statistics.median(imports[1:])}
    return [figures | {"ratio": figures["ready_s"] / figures["imports_s"]}]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--concurrency", default="1,16")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--requests", type=int, help="for each level; default: four times the streams, at least 16")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--startup", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = startup(args) if args.startup else compare(args)
    cpus = os.cpu_count()
    print(
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()} {platform.system()}, {cpus} cores, {args.repeats} repeats"
    )
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
