"""Kernels are kept where only their user can write, and none is loaded that is not whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from vllm_mlx_core.engine.kernel_folder import LEFT_OVER_AFTER_S, keep_private

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are files on Linux only")


@pytest.fixture
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # restores it
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(cache_home):
    return cache_home / "vllm-mlx" / "kernels"


def test_the_folder_is_the_users_own(folder):
    temporary = tempfile.gettempdir()
    keep_private()
    assert os.environ["TMPDIR"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert tempfile.gettempdir() == temporary


def test_a_relative_cache_folder_is_ignored(tmp_path, cache_home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    keep_private()
    assert os.environ["TMPDIR"] == str(tmp_path / ".cache" / "vllm-mlx" / "kernels")


def test_a_folder_that_others_can_write_to_is_not_used(folder, tmp_path):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    keep_private()
    assert os.environ["TMPDIR"] == str(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(folder, tmp_path):
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    keep_private()
    assert os.environ["TMPDIR"] == str(tmp_path)


def test_without_a_cache_folder_kernels_stay_where_they_are(cache_home, tmp_path):
    cache_home.touch()
    keep_private()
    assert os.environ["TMPDIR"] == str(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.99])
def test_a_library_that_is_cut_short_is_removed(share, folder):
    compiler = shutil.which("g++") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler to make a library with")
    folder.mkdir(parents=True, mode=0o700)
    whole, short = folder / "libwhole.so", folder / "mlx" / "cpu" / "libshort.so"
    short.parent.mkdir(parents=True)
    source = folder / "source.c"
    source.write_text("int answer(void) { return 42; }")
    subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", str(source), "-o", str(whole)], check=True)
    content = whole.read_bytes()
    short.write_bytes(content[: int(share * len(content))])
    keep_private()
    assert whole.exists()
    assert not short.exists()


def test_what_compilers_left_behind_is_removed_once_it_is_old(folder):
    folder.mkdir(parents=True, mode=0o700)
    old, new = folder / "tmp_1.cpp", folder / "tmp_2.so"
    old.touch()
    new.touch()
    long_ago = time.time() - LEFT_OVER_AFTER_S - 60
    os.utime(old, (long_ago, long_ago))
    keep_private()
    assert not old.exists()
    assert new.exists()
