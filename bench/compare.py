"""Compare this server with mlx_lm.server on one model, and both with what the model alone can do.

    python bench/compare.py MODEL_DIR [--concurrency 1,16] [--max-tokens 128] [--repeats 9] [--json FILE]

Both servers run, and only one of them is under load at a time: they take short turns, so that a drift of the machine's
speed hits both alike. Each turn is one run of ``loadgen.py``. Printed are the medians, and the median, lowest and
highest of the ratios of neighbouring turns (ours by theirs). The ceiling is ``limit.py``'s forward_only: the model's
forward pass and argmax with no server at all. By default both get the number of BLAS threads that ours chooses;
``--their-blas-threads`` gives theirs another. ``--startup`` measures process start to ready instead, against the bare
import of the libraries.
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
def running(server: str, model: str, blas_threads: int | None = None) -> Iterator[int]:
    """Run a server and yield its port."""
    port = free_port()
    threads = {} if blas_threads is None else {"OPENBLAS_NUM_THREADS": str(blas_threads)}
    process = subprocess.Popen(command(server, model, port), env=os.environ | threads, **QUIET)  # type: ignore[call-overload]
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
    ceilings = {} if args.no_ceiling else ceiling(args.model, levels)
    measured: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with running("ours", args.model) as ours, running("theirs", args.model, args.their_blas_threads) as theirs:
        ports = {"ours": ours, "theirs": theirs}
        for port in ports.values():
            load(port, args.model, max(levels), 2 * max(levels), 16, seed=999)  # warm up
        for repeat in range(args.repeats):
            for level in levels:
                requests = args.requests or max(16, 4 * level)
                for server in sorted(ports, reverse=bool(repeat % 2)):
                    figures = load(ports[server], args.model, level, requests, args.max_tokens, seed=repeat + 1)
                    measured.setdefault((server, level), []).append(figures)
    rows = []
    for level in levels:
        row: dict[str, Any] = {"streams": level}
        for server in ("ours", "theirs"):
            for key in ("out_tok_s", "ttft_ms", "tpot_ms", "gap_ms_max"):
                row[f"{server}_{key}"] = statistics.median(run[key] for run in measured[server, level])
        pairs = zip(measured["ours", level], measured["theirs", level], strict=True)
        ratios = sorted(ours["out_tok_s"] / theirs["out_tok_s"] for ours, theirs in pairs)
        row |= {"ratio": statistics.median(ratios), "lowest": ratios[0], "highest": ratios[-1]}
        if level in ceilings:
            row |= {"forward_only": ceilings[level], "of_ceiling": row["ours_out_tok_s"] / ceilings[level]}
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
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--their-blas-threads", type=int, metavar="N")
    parser.add_argument("--no-ceiling", action="store_true", help="leave out limit.py, which is slow on larger models")
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
