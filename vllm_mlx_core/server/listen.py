"""Where the server listens. The address is claimed before anything slow happens.

The sockets that are returned already listen: a client that comes while a model loads waits instead of being refused,
and no second server can claim the address.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

from vllm_mlx_core.api import Settings, UsageError

BACKLOG = 2048


def bind(settings: Settings) -> socket.socket:
    """Claim the Unix socket or the port that ``settings`` name; the caller owns the result.

    Raises UsageError, in one line, if the address is taken or is not this machine's.
    """
    return _bind_port(settings) if settings.uds is None else _bind_path(settings.uds)


def _bind_port(settings: Settings) -> socket.socket:
    where = f"{settings.host}:{settings.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"Cannot listen on {where}: {error.strerror or error}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart must not wait for old connections
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"{where} is in use by another program: choose a port with --port.") from error
        raise UsageError(f"Cannot listen on {where}: {error.strerror or error}.") from error
    return listener


class _UnixListener(socket.socket):
    """A listening Unix socket that takes its file along when it is closed."""

    _file: tuple[Path, int, int] | None = None

    def claim(self, path: Path) -> None:
        """Bind to ``path``, for this user only. Raises OSError."""
        self.bind(str(path))
        status = path.stat()
        self._file = (path.absolute(), status.st_dev, status.st_ino)
        path.chmod(0o600)  # nobody can connect before it listens

    def close(self) -> None:
        """Close, and remove the file unless another server has replaced it."""
        file, self._file = self._file, None
        super().close()
        if file is not None:
            path, *inode = file
            try:
                status = path.stat()
                if [status.st_dev, status.st_ino] == inode:
                    path.unlink()
            except OSError:
                pass  # it is gone already, or may not be removed; the next server sees that nobody listens


def _bind_path(path: Path) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise UsageError("--uds: this system has no Unix sockets.")
    listener = _UnixListener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.claim(path)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except (OSError, ValueError) as error:
        listener.close()
        raise UsageError(f"Cannot listen on {path}: {getattr(error, 'strerror', None) or error}.") from error
    except UsageError:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that is gone. Raises UsageError for anything else that is there."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise UsageError(f"Cannot listen on {path}: a file that is no socket is there.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            pass  # a full queue, for instance: somebody listens
    raise UsageError(f"{path} is in use by another program: choose another path with --uds.")
