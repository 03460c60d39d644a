"""Processes that die while they write, and such that share a folder, leave nothing that is not whole. All can end."""

import subprocess
import sys
from pathlib import Path

from .disk_processes import prompt
from .disk_states import fetched, files, open_cache, parts

SCRIPT = str(Path(__file__).with_name("disk_processes.py"))


def run(*arguments: object) -> None:
    subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], check=True, timeout=120)


def test_what_killed_processes_leave_is_whole_or_not_to_be_seen(tmp_path):
    run("kill", tmp_path, 50)
    assert files(tmp_path), "no process lived long enough to write"
    parts(tmp_path)
    cache = open_cache(tmp_path)
    found = [fetched(cache, [*prompt(number), 1]) for number in range(50)]
    cache.close()
    assert set(found) <= {0, 128, 256, 300}
    assert 300 in found


def test_two_processes_share_a_folder(tmp_path):
    cap = 60_000
    run("compete", tmp_path, cap, 60)
    parts(tmp_path)
    one_state = 10_000
    assert 0 < sum(path.stat().st_size for path in files(tmp_path)) <= cap + one_state


def test_a_process_ends_while_a_read_hangs(tmp_path):
    run("hang", tmp_path)
