from __future__ import annotations

import socket
import stat
import tempfile
from pathlib import Path

import httpx
import pytest

from vllm_mlx_core.api import Settings, UsageError
from vllm_mlx_core.server import bind, make_server


@pytest.fixture
def path():
    """Short, as the name of a Unix socket has room for about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="uds-") as folder:
        yield Path(folder) / "server.sock"


def test_a_unix_socket_is_this_users_listens_at_once_and_goes_when_it_is_closed(path):
    with bind(Settings(uds=path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_the_socket_of_a_server_that_is_gone_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
        gone.listen()
    assert path.exists()
    with bind(Settings(uds=path)), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_the_socket_of_a_server_that_runs_is_left_alone(path):
    with bind(Settings(uds=path)):
        with pytest.raises(UsageError, match="in use") as info:
            bind(Settings(uds=path))
        assert "\n" not in str(info.value)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_server_does_not_remove_the_socket_that_replaced_its_own(path):
    with bind(Settings(uds=path)):
        path.rename(path.with_suffix(".kept"))
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            kept = path.stat().st_ino
    assert path.stat().st_ino == kept


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_nothing_but_a_socket_is_replaced(path, make):
    make(path)
    with pytest.raises(UsageError, match="no socket"):
        bind(Settings(uds=path))
    assert path.is_dir() or path.is_file() or path.is_symlink()


@pytest.mark.parametrize("name", ["missing/server.sock", "x" * 200])
def test_a_path_that_cannot_be_used_is_one_clear_line(path, name):
    with pytest.raises(UsageError, match="Cannot listen on") as info:
        bind(Settings(uds=path.parent / name))
    assert "\n" not in str(info.value)


def test_requests_are_answered_on_a_unix_socket(serving, make_app, path, caplog):
    caplog.set_level("INFO", "vllm_mlx_core.server.access")
    with (
        serving(make_app(uds=path), uds=path),
        httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=30) as client,
    ):
        answer = client.post("http://any.example/plain/whole", json={"text": "x"})
        assert answer.status_code == 200
    assert not path.exists()
    (record,) = [record for record in caplog.records if hasattr(record, "access")]
    assert (record.access.status, record.access.client) == (200, None)


def test_a_socket_in_a_thread_that_never_ran_is_closed_with_its_file(path, make_app):
    listener = bind(Settings(uds=path))
    make_server(make_app(uds=path), Settings(uds=path))
    listener.close()
    listener.close()
    assert not path.exists()
