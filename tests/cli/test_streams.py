"""Standard streams that are closed, full, in another encoding, or read by somebody who leaves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "vllm_mlx_core")
GENERATE = (*PROGRAM, "generate", "scripted", "--plugin", "vllm_mlx_core.testing.scripted")


def run(*command, shell=None, **more):
    if shell is not None:
        command = ("sh", "-c", f'exec "$@" {shell}', "sh", *command)
    return subprocess.run(command, capture_output=True, timeout=120, check=False, **more)


@pytest.mark.parametrize("command", [(*PROGRAM, "plugins"), (*GENERATE, "hello"), (*GENERATE, "hello", "--json")])
def test_a_reader_that_leaves_ends_the_program_quietly(command):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"rror" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [(*PROGRAM, "plugins"), (*GENERATE, "hello"), (*GENERATE, "hello", "--json")])
def test_output_that_cannot_be_written_is_one_line(command):
    done = run(*command, shell=">/dev/full")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1] == "vllm-mlx: [Errno 28] No space left on device"
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_if_nobody_were_there(closed):
    done = run(*GENERATE, "hello", shell=closed)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"" if ">&- " in f"{closed} ".replace("2>&-", "") else b"hello\n")


def test_characters_that_the_encoding_lacks_are_replaced():
    done = run(*GENERATE, "na\u00efve", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, b"na?ve\n")


def test_input_that_is_no_text_is_replaced():
    done = run(*GENERATE, "-", input=b"a\xffb", env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert (done.returncode, done.stdout.decode()) == (0, "a\ufffdb\n")
