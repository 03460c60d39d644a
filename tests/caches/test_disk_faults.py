"""Disks that do not answer, files that cannot be removed, and what else must not reach a request."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

import pytest

from vllm_mlx_caches.disk import reader
from vllm_mlx_caches.disk.folder import Folder

from .disk_states import WAIT_S, fetched, files, keep, open_cache, parts, size

PROMPT = tuple(range(1000, 1300))


class Gate:
    """Holds calls of a method until it is opened."""

    def __init__(self, monkeypatch, method: str) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()
        self.calls = 0
        original = getattr(Folder, method)

        def wait(folder, *arguments):
            self.calls += 1
            self.reached.set()
            assert self._opened.wait(WAIT_S)
            return original(folder, *arguments)

        monkeypatch.setattr(Folder, method, wait)

    def open(self) -> None:
        self._opened.set()


def eventually(is_so) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def begins_to_look(cache, tokens) -> bool:
    fetch = cache.fetch(tokens)
    if fetch is not None:
        fetch.cancel()
    return fetch is not None


def stored(folder, *prompts) -> None:
    cache = open_cache(folder)
    for prompt in prompts or (PROMPT,):
        keep(cache, prompt)
    cache.close()


@pytest.fixture
def undeletable(monkeypatch):
    """Files that cannot be removed until the list is emptied."""
    reasons = ["immutable"]
    unlink = Path.unlink

    def refuse(path, missing_ok=False):
        if reasons and path.name.startswith("vllm-mlx-"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    return reasons


# -- reading -----------------------------------------------------------------------------------------------------------


def test_behind_a_read_that_hangs_nobody_waits(tmp_path, monkeypatch):
    stored(tmp_path)
    gate = Gate(monkeypatch, "read")
    cache = open_cache(tmp_path)
    first = cache.fetch((*PROMPT, 1))
    assert first is not None
    assert gate.reached.wait(WAIT_S)
    assert begins_to_look(cache, (*PROMPT, 2))  # it may still be done soon
    monkeypatch.setattr(reader, "STUCK_S", 0.0)
    assert cache.fetch((*PROMPT, 3)) is None
    gate.open()
    assert first.future.exception(WAIT_S) is None
    eventually(lambda: begins_to_look(cache, (*PROMPT, 4)))
    first.keep()
    assert fetched(cache, (*PROMPT, 1)) == len(PROMPT)
    cache.close()


def test_the_end_waits_for_no_read_and_begins_none(tmp_path, monkeypatch):
    stored(tmp_path)
    gate = Gate(monkeypatch, "read")
    cache = open_cache(tmp_path)
    first, second = cache.fetch((*PROMPT, 1)), cache.fetch((*PROMPT[:200], 1))
    assert first is not None
    assert second is not None
    assert gate.reached.wait(WAIT_S)
    cache.close()
    assert not first.future.done()
    assert second.future.cancelled()
    gate.open()
    assert first.future.exception(WAIT_S) is None


def test_what_is_no_regular_file_is_a_miss_and_written_over(tmp_path):
    stored(tmp_path)
    middle = files(tmp_path)[1]  # of three: the beginning was used last
    middle.unlink()
    os.mkfifo(middle)
    cache = open_cache(tmp_path)
    assert fetched(cache, (*PROMPT, 1)) == 128
    keep(cache, PROMPT)
    cache.close()
    cache = open_cache(tmp_path)
    assert fetched(cache, (*PROMPT, 1)) == len(PROMPT)
    cache.close()


# -- clearing ----------------------------------------------------------------------------------------------------------


def test_nothing_that_was_stored_before_a_clear_is_found_after_it(tmp_path, monkeypatch):
    stored(tmp_path)
    gate = Gate(monkeypatch, "names")
    cache = open_cache(tmp_path)
    cache.clear()
    assert cache.fetch((*PROMPT, 1)) is None  # the files are still there
    assert files(tmp_path)
    gate.open()
    eventually(lambda: begins_to_look(cache, (*PROMPT, 1)))
    assert fetched(cache, (*PROMPT, 1)) == 0
    assert not files(tmp_path)
    cache.close()


def test_what_waits_to_be_written_when_all_is_cleared_is_dropped_and_what_comes_after_is_kept(tmp_path, monkeypatch):
    after = tuple(range(300))
    gate = Gate(monkeypatch, "write")
    cache = open_cache(tmp_path)
    keep(cache, PROMPT)
    assert gate.reached.wait(WAIT_S)
    for number in range(5):
        keep(cache, (number, *PROMPT))
    cache.clear()
    keep(cache, PROMPT[:128])  # what was under way before
    keep(cache, after)
    gate.open()
    cache.close()
    assert gate.calls == 1 + 1 + 3
    for prompt, expected in ((PROMPT, 128), ((0, *PROMPT), 0), (after, len(after))):
        cache = open_cache(tmp_path)
        assert fetched(cache, (*prompt, 9999)) == expected
        cache.close()


def test_what_a_clear_cannot_remove_is_told_and_not_found_until_it_is_removed(tmp_path, undeletable, caplog):
    stored(tmp_path)
    cache = open_cache(tmp_path)
    assert fetched(cache, (*PROMPT, 1)) == len(PROMPT)
    cache.clear()
    eventually(lambda: "cannot be removed" in caplog.text)
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    assert fetched(cache, (*PROMPT, 1)) == 0
    undeletable.clear()
    cache.clear()
    eventually(lambda: begins_to_look(cache, (*PROMPT, 1)))
    assert not files(tmp_path)
    cache.close()


# -- room --------------------------------------------------------------------------------------------------------------


def test_the_cap_is_obeyed_and_it_is_told_once_when_files_cannot_be_removed(tmp_path, undeletable, caplog):
    cap = 20_000
    cache = open_cache(tmp_path, max_gb=str(cap / 1e9))
    for number in range(20):
        keep(cache, (number, *PROMPT))
    cache.close()
    assert cap / 2 < size(tmp_path) <= cap
    assert cache.stats().unstored_parts > 0
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
    parts(tmp_path)


def test_what_another_process_is_writing_takes_room_and_stays(tmp_path):
    theirs = tmp_path / ".vllm-mlx-abc1-0.tmp"
    theirs.write_bytes(b"x" * 5000)
    a_minute_ago = time.time() - 60
    os.utime(theirs, (a_minute_ago, a_minute_ago))
    cap = 20_000
    cache = open_cache(tmp_path, max_gb=str(cap / 1e9))
    for number in range(20):
        keep(cache, (number, *PROMPT))
    cache.close()
    assert theirs.stat().st_size == 5000
    assert cap / 2 < size(tmp_path) <= cap
