"""Clients that are not among the test dependencies: each installed once into a folder of its own, and kept."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vllm-mlx-tests"
INSTALL_TIMEOUT_S = 280
IDLE_TIMEOUT_S = 20
LONG = "x" * 50_000  # as a script it takes far longer than IDLE_TIMEOUT_S to answer, so whoever is idle has stopped


def npm_packages(name: str, packages: Sequence[str]) -> Path:
    """Return a folder whose ``node_modules`` hold the packages."""
    folder = CACHE / name
    with installing(folder, packages) as wanted:
        if wanted:
            (folder / "package.json").write_text('{"private": true, "type": "module"}')
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
            subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIMEOUT_S)
    return folder


def python_packages(name: str, packages: Sequence[str]) -> Path:
    """Return the folder of the programs of a virtual environment that holds the packages and what they need."""
    folder = CACHE / name
    with installing(folder, packages) as wanted:
        if wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True, timeout=120)
            pip = [str(folder / "venv/bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-compile"]
            subprocess.run([*pip, *packages], check=True, timeout=INSTALL_TIMEOUT_S)
    return folder / "venv/bin"


@contextmanager
def installing(folder: Path, packages: Sequence[str]) -> Iterator[bool]:
    """Say whether the packages are still to be installed into ``folder``; one process at a time, and only whole."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "installed"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = not stamp.is_file() or stamp.read_text() != " ".join(packages)
        if wanted:
            stamp.unlink(missing_ok=True)
        yield wanted
        stamp.write_text(" ".join(packages))


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the variables for a program that must not see this user's settings or keys, nor leave this machine."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"HOME": str(home), "NO_PROXY": "*", "NO_COLOR": "1"} | more


def await_idle(server: str) -> None:
    """Wait until the server has no request left; fail if it goes on with one."""
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    with httpx.Client(base_url=server) as http:
        while (model := http.get("/health").json()["models"]["scripted"])["requests"]:
            assert time.monotonic() < deadline, model
