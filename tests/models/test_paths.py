"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import time

import pytest

from vllm_mlx_core.api import ModelError
from vllm_mlx_models.paths import atomic_file, atomic_folder, ensure_writable


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with atomic_folder(tmp_path / "a" / "b") as scratch:
        (scratch / "file").write_text("1")
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "file").read_text() == "1"


def test_a_folder_that_failed_leaves_nothing(tmp_path):
    def fail():
        with atomic_folder(tmp_path / "b") as scratch:
            (scratch / "file").write_text("1")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_made_first_stays(tmp_path):
    target = tmp_path / "b"
    with atomic_folder(target) as scratch:
        (scratch / "file").write_text("mine")
        target.mkdir()
        (target / "file").write_text("theirs")
    assert (target / "file").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_failed_leaves_the_old_one(tmp_path):
    target = tmp_path / "f"
    target.write_text("old")

    def fail():
        with atomic_file(target) as scratch:
            scratch.write_text("new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_place_that_cannot_be_written_names_the_variable(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="VLLM_MLX_CACHE_DIR"), atomic_folder(tmp_path / "file" / "b"):
        pass


@pytest.mark.parametrize("name", [".123-f", ".f-abc"])
def test_what_a_killed_process_left_is_removed_once_it_is_old(tmp_path, name):
    make = atomic_file if name.endswith("-f") else atomic_folder
    old, new = tmp_path / name, tmp_path / name.replace("123", "456").replace("abc", "def")
    for left in (old, new):
        left.mkdir() if make is atomic_folder else left.touch()
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(old, (yesterday, yesterday))
    with make(tmp_path / "f") as scratch:
        scratch.mkdir(exist_ok=True) if make is atomic_folder else scratch.touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([new.name, "f"])


def test_whether_a_folder_can_be_written_is_found_out_without_leaving_anything(tmp_path):
    ensure_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="VLLM_MLX_CACHE_DIR"):
        ensure_writable(tmp_path / "file" / "b")
