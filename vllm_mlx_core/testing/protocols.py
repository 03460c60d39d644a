"""What authors of protocol front-ends test with: an engine that replies as it is told, and the contract as tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple

import httpx
from fastapi import FastAPI

from vllm_mlx_core.api import (
    AuthenticationFailed,
    ContextLengthExceeded,
    EngineFailed,
    GenerateRequest,
    InsufficientMemory,
    InvalidRequest,
    NotFound,
    Overloaded,
    PayloadTooLarge,
    ProtocolFrontend,
    RateLimited,
    RequestCancelled,
    RequestError,
    RequestTimedOut,
    Settings,
    Unsupported,
)
from vllm_mlx_core.server import assemble

from ._scripted_engine import Reply, ScriptedEngine, ScriptedStream, Step, end, events_reply, text_reply
from ._suite import ConformanceSuite

__all__ = [
    "REQUEST_ERRORS",
    "Exchange",
    "ProtocolSuite",
    "Reply",
    "ScriptedEngine",
    "ScriptedStream",
    "Step",
    "connect",
    "end",
    "events_reply",
    "text_reply",
]

REQUEST_ERRORS: Sequence[RequestError] = (
    InvalidRequest("This field is wrong.", param="field"),
    ContextLengthExceeded("The prompt is too long."),
    AuthenticationFailed("Wrong key."),
    NotFound("There is no such thing."),
    PayloadTooLarge("Too large."),
    RateLimited("Too many requests.", retry_after_s=7),
    RequestCancelled("Somebody cancelled it."),
    EngineFailed("The engine failed."),
    Unsupported("Not in this build."),
    Overloaded("The queue is full.", retry_after_s=3),
    InsufficientMemory("It needs more memory than there is."),
    RequestTimedOut("It took too long."),
)
"""One of each kind."""


class Exchange(NamedTuple):
    """A request that makes the front-end generate: where it goes and its JSON body."""

    path: str
    body: Mapping[str, Any]
    method: str = "POST"


class ProtocolSuite(ConformanceSuite):
    """The contract of every protocol front-end. Set ``frontend``, ``whole`` and ``streamed``.

    All tests speak HTTP to the front-end behind the real server shell, with a ScriptedEngine for a model.
    """

    frontend: ClassVar[type[ProtocolFrontend]]
    whole: ClassVar[Exchange]
    """Asks for an answer in one piece, from the model "default"."""
    streamed: ClassVar[Exchange | None] = None
    """Asks for an answer as server-sent events; None if the protocol has none."""

    secret: ClassVar[str] = "/secret/path/of/the/server"

    def app(self, engine: ScriptedEngine, **settings: Any) -> FastAPI:
        """Return the server with only this front-end."""
        chosen = Settings(**settings)
        return assemble(engine, [self.frontend(engine, chosen)], chosen)

    def ask(self, app: FastAPI, exchange: Exchange, **options: Any) -> httpx.Response:
        """Return the server's answer to one request."""

        async def send() -> httpx.Response:
            async with connect(app) as client:
                return await client.request(exchange.method, exchange.path, **{"json": exchange.body, **options})

        return asyncio.run(send())

    @property
    def exchanges(self) -> list[Exchange]:
        """What can be asked for."""
        return [self.whole] if self.streamed is None else [self.whole, self.streamed]

    def test_it_owns_the_paths_of_its_routes(self) -> None:
        """Errors on a path are rendered by whoever owns it, so an unowned route would answer in a foreign shape."""
        router = self.frontend(ScriptedEngine(), Settings()).router()
        assert router.routes
        for route in router.routes:
            path = getattr(route, "path", "")
            owned = [own for own in self.frontend.paths if path == own or path.startswith(own.rstrip("/") + "/")]
            assert owned, f"{path} is under none of {self.frontend.paths}"

    def test_openapi_describes_its_routes(self) -> None:
        """The description is what clients are generated from."""
        schema = self.app(ScriptedEngine()).openapi()
        json.dumps(schema)
        assert any(self.whole.method.lower() in operations for operations in schema["paths"].values())

    def test_the_answer_holds_the_text_of_the_model(self) -> None:
        """What the engine said arrives, and the outputs are closed."""
        engine = ScriptedEngine(text_reply("wombat"))
        response = self.ask(self.app(engine), self.whole)
        assert response.status_code == 200, response.text
        assert "wombat" in response.text
        assert all(stream.closed.is_set() for stream in engine.streams)

    def test_the_stream_is_an_event_stream_and_ends(self) -> None:
        """It has the right type, says everything and closes its outputs."""
        if self.streamed is None:
            return
        engine = ScriptedEngine(text_reply("wombat"))
        response = self.ask(self.app(engine), self.streamed)
        assert response.status_code == 200, response.text
        assert response.headers.get("content-type", "").startswith("text/event-stream")
        assert all(letter in response.text for letter in "wombat")
        assert response.text.endswith("\n\n")
        assert all(stream.closed.is_set() for stream in engine.streams)

    def test_every_error_has_its_status_and_the_protocols_shape(self) -> None:
        """A refusal of the engine comes out with its own status and text, for every kind there is."""
        for error in REQUEST_ERRORS:
            for exchange in self.exchanges:
                response = self.ask(self.app(ScriptedEngine(_refuse(error))), exchange)
                assert response.status_code == error.status, (error, response.text)
                assert error.message in response.text
                self.check_error(response)
                if error.retry_after_s is not None:
                    assert response.headers["retry-after"] == str(error.retry_after_s)

    def test_unknown_routes_methods_and_keys_are_errors_of_this_protocol(self) -> None:
        """What never reaches a route is rendered here as well."""
        app = self.app(ScriptedEngine(text_reply("x")))
        missing = self.whole._replace(path=self.frontend.paths[0].rstrip("/") + "/no/such/route")
        assert self._status(app, missing) == 404
        assert self._status(app, self.whole._replace(method="TRACE")) == 405
        locked = self.app(ScriptedEngine(text_reply("x")), api_keys=["right"])
        assert self._status(locked, self.whole) == 401
        assert self.ask(locked, self.whole, headers={"x-api-key": "right"}).status_code == 200

    def test_a_body_that_is_not_an_object_is_the_clients_fault(self) -> None:
        """Broken JSON, foreign types and nothing at all are 400, never a traceback."""
        app = self.app(ScriptedEngine(text_reply("x")))
        headers = {"content-type": "application/json"}
        for body in (b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000):
            response = self.ask(app, self.whole, json=None, content=body, headers=headers)
            assert response.status_code == 400, (body[:20], response.text)
            self.check_error(response)

    def test_an_unexpected_exception_is_a_500_that_tells_nothing(self) -> None:
        """Its text may hold paths or secrets: it goes to the log only."""
        for exchange in self.exchanges:
            response = self.ask(self.app(ScriptedEngine(_refuse(RuntimeError(self.secret)))), exchange)
            assert response.status_code == 500
            self.check_error(response)

    def test_a_failure_midway_ends_a_stream_with_an_error(self) -> None:
        """The status is gone already, so the last event says it."""
        if self.streamed is None:
            return
        script: list[Step] = [*text_reply("wombat")[:3], EngineFailed("The engine broke.")]
        response = self.ask(self.app(ScriptedEngine(script)), self.streamed)
        assert response.status_code == 200
        assert "The engine broke." in response.text.rstrip().rsplit("\n\n", 1)[-1]

    def test_a_failure_midway_is_an_error_if_nothing_was_sent(self) -> None:
        """An answer in one piece still has its status."""
        script: list[Step] = [*text_reply("wombat")[:3], EngineFailed("The engine broke.")]
        response = self.ask(self.app(ScriptedEngine(script)), self.whole)
        assert response.status_code == 500
        self.check_error(response)

    def test_a_client_that_leaves_stops_the_engine(self) -> None:
        """The outputs are closed while the engine still waits, so that nothing is computed for nobody."""
        for exchange in self.exchanges:
            asyncio.run(_leave(self.app, exchange))

    def test_the_lifespan_can_be_entered_and_left(self) -> None:
        """Starting and stopping the server works."""

        async def live() -> None:
            app = self.app(ScriptedEngine())
            async with app.router.lifespan_context(app):
                pass

        asyncio.run(live())

    def check_error(self, response: httpx.Response) -> None:
        """Assert what is true of an error in any protocol; override it to check your own shape as well."""
        assert response.status_code >= 400
        assert response.text, "an error needs a body"
        for leak in ("Traceback", 'File "', self.secret, '"detail"'):
            assert leak not in response.text

    def _status(self, app: FastAPI, exchange: Exchange) -> int:
        response = self.ask(app, exchange)
        self.check_error(response)
        return response.status_code


@asynccontextmanager
async def connect(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client that speaks to ``app`` in this process, without a socket."""
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def _refuse(error: Exception) -> Callable[[GenerateRequest], Reply]:
    def reply(request: GenerateRequest) -> Reply:
        raise error

    return reply


async def _leave(make_app: Callable[[ScriptedEngine], FastAPI], exchange: Exchange) -> None:
    """Send a request, go away as soon as the engine is asked, and require that its outputs get closed."""
    asked, left = asyncio.Event(), asyncio.Event()

    def reply(request: GenerateRequest) -> Reply:
        asked.set()
        return [*text_reply("wombat")[:2], asyncio.Event()]

    engine = ScriptedEngine(reply)
    messages = [{"type": "http.request", "body": json.dumps(exchange.body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": "http",
        "path": exchange.path,
        "raw_path": exchange.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    app: Callable[..., Awaitable[None]] = make_app(engine)
    running = asyncio.ensure_future(app(scope, receive, send))
    async with asyncio.timeout(30):
        await asked.wait()
        left.set()
        await running
    assert engine.streams
    assert all(stream.closed.is_set() for stream in engine.streams), "the outputs of a request were left open"
