"""The life of the server process: claim the port, serve, drain, stop."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from vllm_mlx_core.api import Settings, UsageError

from . import shutdown
from .http1 import HTTP1

BACKLOG = 2048
IDLE_CONNECTION_S = 75
"""How long an unused connection is kept: longer than clients' pools keep theirs, so that they are the ones to close."""
SWITCH_INTERVAL_S = 0.0005
"""How long one thread may keep the interpreter from another: the engine must not wait for a burst of requests."""
LAST_WORDS_S = 2.0
"""How long aborted requests and the application's own shutdown may take when nobody waits any more."""


def bind(settings: Settings) -> socket.socket:
    """Claim the address before anything slow happens; the caller owns the socket.

    It already listens: a client that comes while a model loads waits instead of being refused, and no second server
    can claim the port. Raises UsageError, in one line, if the address is taken or is not this machine's.
    """
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


def serve(
    app: ASGIApp, listener: socket.socket, settings: Settings, *, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT, and then drain. Blocks; main thread. Closes ``listener``.

    The first signal stops accepting and lets running requests finish for ``settings.drain_timeout_s``; what still runs
    is then aborted, each with its protocol's error. A second signal aborts at once. ``ready`` is called when the
    application has started.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    make_server(app, settings, ready=ready).run([listener])


def make_server(app: ASGIApp, settings: Settings, *, ready: Callable[[], None] = lambda: None) -> Server:
    """Return the server that ``serve`` runs, for whoever has an event loop of their own."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=HTTP1,
        log_config=None,
        log_level="warning",
        access_log=False,  # ours has the request's id and no query
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_CONNECTION_S,
    )
    return Server(config, settings.drain_timeout_s, ready)


class Server(uvicorn.Server):
    """uvicorn's server with our way of stopping."""

    def __init__(self, config: uvicorn.Config, drain_timeout_s: float, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain_timeout_s = drain_timeout_s
        self._ready = ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gently at the first signal, at once at the second. A stop that was asked for is no failure."""
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, drain, abort what still runs, stop the application."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._drain()
        await self._abort()
        await asyncio.wait_for(self.lifespan.shutdown(), LAST_WORDS_S if self.force_exit else None)

    async def _drain(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._drain_timeout_s
        while tasks := set(self.server_state.tasks):
            remaining = deadline - asyncio.get_running_loop().time()
            if self.force_exit or remaining <= 0:
                return
            # The second signal only sets a flag, so look at it now and then.
            await asyncio.wait(tasks, timeout=min(remaining, 0.1))

    async def _abort(self) -> None:
        tasks = set(self.server_state.tasks)
        for task in tasks:
            shutdown.abort(task)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)
        for connection in list(self.server_state.connections):
            connection.transport.close()
