"""The life of the server process: serve, drain, stop."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

from vllm_mlx_core.api import ProtocolFrontend, Settings

from . import shutdown
from .http1 import HTTP1
from .listen import BACKLOG

log = logging.getLogger(__name__)

IDLE_CONNECTION_S = 75
"""How long an unused connection is kept: longer than clients' pools keep theirs, so that they are the ones to close."""
SWITCH_INTERVAL_S = 0.0005
"""How long one thread may keep the interpreter from another: the engine must not wait for a burst of requests."""
LAST_WORDS_S = 2.0
"""How long aborted requests and the application's own shutdown may take when nobody waits any more."""


def serve(
    app: FastAPI, listener: socket.socket, settings: Settings, *, ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT, and then drain. Blocks; main thread. Closes ``listener``.

    The first signal stops accepting and lets running requests finish for ``settings.drain_timeout_s``, and what
    front-ends run for nobody who waits; what still runs is then aborted, each with its protocol's error. A second
    signal aborts at once. ``ready`` is called when the application has started.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    make_server(app, settings, ready=ready).run([listener])


def make_server(app: FastAPI, settings: Settings, *, ready: Callable[[], None] = lambda: None) -> Server:
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
        ssl_certfile=settings.ssl_certfile,
        ssl_keyfile=settings.ssl_keyfile,
    )
    return Server(config, settings.drain_timeout_s, ready, app.state.frontends)


async def _drain(frontend: ProtocolFrontend) -> None:
    try:
        await frontend.drain()
    except Exception:
        log.exception("%s could not wait for what it runs", type(frontend).__name__)


class Server(uvicorn.Server):
    """uvicorn's server with our way of stopping."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain_timeout_s: float,
        ready: Callable[[], None],
        frontends: Sequence[ProtocolFrontend],
    ) -> None:
        super().__init__(config)
        self._frontends = frontends
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
        """Wait for what runs, for clients and on behalf of none."""
        deadline = asyncio.get_running_loop().time() + self._drain_timeout_s
        drains = {asyncio.create_task(_drain(frontend)) for frontend in self._frontends}
        while running := {*self.server_state.tasks, *(task for task in drains if not task.done())}:
            if not await self._wait(running, deadline):
                break
        for task in drains:
            task.cancel()
        await asyncio.gather(*drains, return_exceptions=True)

    async def _wait(self, tasks: set[asyncio.Task[None]], deadline: float) -> bool:
        """Wait for a moment, and return whether there is time for more."""
        remaining = deadline - asyncio.get_running_loop().time()
        if self.force_exit or remaining <= 0:
            return False
        # The second signal only sets a flag, so look at it now and then.
        await asyncio.wait(tasks, timeout=min(remaining, 0.1))
        return True

    async def _abort(self) -> None:
        tasks = set(self.server_state.tasks)
        for task in tasks:
            shutdown.abort(task)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)
        for connection in list(self.server_state.connections):
            connection.transport.close()
