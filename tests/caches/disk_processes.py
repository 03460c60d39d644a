"""Run as a script: processes that keep states in one folder, and are killed, compete or hang.

kill FOLDER TIMES        start a process that writes and kill it, so many times
compete FOLDER CAP TIMES start two processes that write and read under a cap of so many bytes, so many prompts each
hang FOLDER              begin a read that never ends, and end
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.caches.disk_states import fetched, keep, open_cache
from vllm_mlx_caches.disk.folder import Folder


def prompt(number: int) -> list[int]:
    return [number] * 150 + list(range(150))


def write_until_killed(folder: Path, number: int) -> None:
    cache = open_cache(folder)
    while True:
        keep(cache, prompt(number), point=number % 2 == 0)
        number += 1000
        time.sleep(0.001)


def kill(folder: Path, times: int) -> None:
    chance = random.Random(7)
    for number in range(times):
        if not (pid := os.fork()):
            write_until_killed(folder, number)
        time.sleep(chance.uniform(0.005, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def compete(folder: Path, cap: int, times: int) -> None:
    children = []
    for process in range(2):
        if not (pid := os.fork()):
            try:
                cache = open_cache(folder, max_gb=str(cap / 1e9))
                for number in range(times):
                    keep(cache, prompt(number), point=number % 2 == 0)
                    fetched(cache, [*prompt(max(0, number + process - 1)), 1])
                cache.close()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    if any(os.waitpid(pid, 0)[1] for pid in children):
        raise SystemExit("a process failed")


def hang(folder: Path) -> None:
    def never(_folder: Folder, _name: str) -> bytes:
        reached.set()
        threading.Event().wait()
        raise AssertionError

    reached = threading.Event()
    cache = open_cache(folder)
    keep(cache, prompt(1))
    cache.close()
    setattr(Folder, "read", never)  # noqa: B010 - a method may not be assigned to
    cache = open_cache(folder)
    cache.fetch([*prompt(1), 1])
    if not reached.wait(30):
        raise SystemExit("nothing was read")
    cache.close()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kill", folder, times]:
            kill(Path(folder), int(times))
        case ["compete", folder, cap, times]:
            compete(Path(folder), int(cap), int(times))
        case ["hang", folder]:
            hang(Path(folder))
