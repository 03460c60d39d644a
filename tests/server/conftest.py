from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from vllm_mlx_core.api import Chat, EventStream, GenerateRequest, ProtocolFrontend, Settings, or_disconnect
from vllm_mlx_core.server import assemble, bind, make_server
from vllm_mlx_core.testing.protocols import ScriptedEngine


class Asked(BaseModel):
    text: str


class PlainEncoder:
    """A protocol of one line per text."""

    def start(self):
        return b"data: start\n\n"

    def feed(self, outputs):
        return b"".join(b"data: %s\n\n" % event.text.encode() for output in outputs for event in output.events)

    def finish(self):
        return b"data: end\n\n"

    def error(self, error):
        return b"data: error %s\n\n" % error.message.encode()

    def keep_alive(self):
        return b": keep-alive\n\n"


class StreamResponse(Response):
    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    async def __call__(self, scope, receive, send):
        await self._stream(scope, receive, send)


class PlainFrontend(ProtocolFrontend):
    """The smallest front-end that streams."""

    paths = ("/plain",)
    keep_alive_s = 10.0

    def router(self):
        router = APIRouter()

        async def generate(body):
            chat = Chat(messages=[{"role": "user", "content": body.text}])
            return await self.engine.generate(GenerateRequest(request_id="r", model="default", prompt=chat))

        @router.post("/plain/stream")
        async def stream(body: Asked) -> Response:
            outputs = await generate(body)
            return StreamResponse(EventStream(outputs, PlainEncoder(), keep_alive_s=self.keep_alive_s))

        @router.post("/plain/whole")
        async def whole(request: Request, body: Asked) -> Response:
            outputs = await generate(body)

            async def read():
                return "".join([event.text async for step in outputs for o in step for event in o.events])

            try:
                return JSONResponse({"text": await or_disconnect(request.receive, read())})
            finally:
                await outputs.aclose()

        @router.get("/plain/crash")
        async def crash() -> Response:
            raise RuntimeError("secret /path")

        return router

    def render_error(self, error):
        return JSONResponse({"plain": error.message, "param": error.param}, error.status)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def engine():
    return ScriptedEngine()


@pytest.fixture
def make_app(engine):
    def make(*, frontends=(PlainFrontend,), **settings):
        chosen = Settings(**settings)
        return assemble(engine, [kind(engine, chosen) for kind in frontends], chosen)

    return make


class Running:
    """A real server in a thread of its own."""

    def __init__(self, app, **settings):
        self.settings = Settings(port=0, **settings)
        self.listener = bind(self.settings)
        self.port = self.listener.getsockname()[1]
        ready = threading.Event()
        self.server = make_server(app, self.settings, ready=ready.set)
        self._thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self._thread.start()
        assert ready.wait(30)

    def signal(self):
        """Do what a signal's handler does."""
        self.server.handle_exit(15, None)

    def join(self):
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server does not stop"


@pytest.fixture
def serving():
    @contextmanager
    def run(app, **settings):
        running = Running(app, **settings)
        try:
            yield running
        finally:
            running.signal()
            running.signal()
            running.join()

    return run
