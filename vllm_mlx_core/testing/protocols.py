"""What authors of protocol front-ends test with: an engine that replies as it is told, and the contract as tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple, TypeAlias

import httpx
from fastapi import FastAPI

from vllm_mlx_core.api import (
    AuthenticationFailed,
    Chat,
    ContextLengthExceeded,
    EngineFailed,
    Event,
    FinishReason,
    GenerateRequest,
    InvalidRequest,
    ModelInfo,
    NotFound,
    Output,
    Overloaded,
    PayloadTooLarge,
    ProtocolFrontend,
    RateLimited,
    RenderedPrompt,
    RequestError,
    RequestTimedOut,
    Settings,
    TextDelta,
    Unsupported,
    Usage,
)
from vllm_mlx_core.server import assemble

from ._suite import ConformanceSuite

Step: TypeAlias = Sequence[Output] | RequestError | asyncio.Event
"""What one engine step does: adds outputs, fails the request, or waits until the event is set."""
Reply: TypeAlias = Iterable[Step]


def text_reply(text: str, *, finish: FinishReason = "stop", prompt_tokens: int = 3) -> list[Step]:
    """Return a reply of one character per step, each of them one token, and then the finish."""
    steps: list[Step] = [[Output(choice=0, events=[TextDelta(each)], token_ids=[ord(each)])] for each in text]
    return [*steps, end(finish, completion_tokens=len(text) + 1, prompt_tokens=prompt_tokens)]


def events_reply(*events: Event, finish: FinishReason = "stop", prompt_tokens: int = 3) -> list[Step]:
    """Return a reply of one event per step, and then the finish."""
    steps: list[Step] = [[Output(choice=0, events=[event], token_ids=[0])] for event in events]
    return [*steps, end(finish, completion_tokens=len(events) + 1, prompt_tokens=prompt_tokens)]


def end(finish: FinishReason = "stop", *, completion_tokens: int = 1, prompt_tokens: int = 3) -> list[Output]:
    """Return the step that ends a completion."""
    usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
    return [Output(choice=0, finish=finish, usage=usage)]


class ScriptedStream:
    """One request's outputs (an ``api.OutputStream``); remembers how far it got and whether it was closed."""

    def __init__(self, steps: Reply, n: int, prompt_tokens: int) -> None:
        self._steps = steps
        self._n = n
        self.prompt_tokens = prompt_tokens
        self.steps_taken = 0
        self.closed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over the script; between two steps others get a turn, as with a real engine."""
        for step in self._steps:
            await asyncio.sleep(0)
            if self.closed.is_set():
                return
            self.steps_taken += 1
            if isinstance(step, RequestError):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield self._for_every_choice(step)

    async def aclose(self) -> None:
        """Note that the front-end is done with it."""
        self.closed.set()

    def _for_every_choice(self, outputs: Sequence[Output]) -> Sequence[Output]:
        if self._n == 1 or any(output.choice for output in outputs):
            return outputs
        return [_with_choice(output, choice) for choice in range(self._n) for output in outputs]


class ScriptedEngine:
    """An ``api.EngineClient`` without a model: it replies with given outputs and remembers what it was asked.

    ``reply`` is a script or makes one from the request; it may raise RequestError, which refuses the request. A script
    that only speaks of choice 0 is repeated for every completion. Outputs are the engine's side of the contract: a
    script that breaks it tests nothing.
    """

    def __init__(
        self,
        reply: Reply | Callable[[GenerateRequest], Reply] = (),
        *,
        models: Sequence[str] = ("scripted/model",),
        prompt_tokens: int = 3,
    ) -> None:
        self.reply = reply
        self.requests: list[GenerateRequest] = []
        self.streams: list[ScriptedStream] = []
        self.status = "ok"
        self.prompt_tokens = prompt_tokens
        self._models = [ModelInfo(id=name, created=1_700_000_000, context_length=4096, family="s") for name in models]

    def models(self) -> Sequence[ModelInfo]:
        """Return the models it pretends to serve."""
        return self._models

    def model(self, name: str) -> ModelInfo:
        """Return one of them; the first is also called "default". Raises NotFound."""
        for info in self._models:
            if name == info.id:
                return info
        if name == "default":
            return self._models[0]
        raise NotFound("There is no such model.")

    async def generate(self, request: GenerateRequest) -> ScriptedStream:
        """Start the script."""
        self.requests.append(request)
        steps = self.reply(request) if callable(self.reply) else self.reply
        stream = ScriptedStream(steps, request.n, self.prompt_tokens)
        self.streams.append(stream)
        return stream

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Render the texts of the prompt, one line each, one token per character."""
        prompt = request.prompt
        if isinstance(prompt, Chat):
            prompt = "\n".join(str(message.get("content") or "") for message in prompt.messages)
        if isinstance(prompt, str):
            return RenderedPrompt(text=prompt, token_ids=[ord(each) for each in prompt])
        return RenderedPrompt(text="", token_ids=prompt)

    def health(self) -> Mapping[str, Any]:
        """Return ``status``."""
        return {"status": self.status, "models": {info.id: {} for info in self._models}}


def _with_choice(output: Output, choice: int) -> Output:
    return Output(
        choice=choice,
        events=output.events,
        token_ids=output.token_ids,
        logprobs=output.logprobs,
        finish=output.finish,
        stop=output.stop,
        usage=output.usage,
    )


REQUEST_ERRORS: Sequence[RequestError] = (
    InvalidRequest("This field is wrong.", param="field"),
    ContextLengthExceeded("The prompt is too long."),
    AuthenticationFailed("Wrong key."),
    NotFound("There is no such thing."),
    PayloadTooLarge("Too large."),
    RateLimited("Too many requests.", retry_after_s=7),
    EngineFailed("The engine failed."),
    Unsupported("Not in this build."),
    Overloaded("The queue is full.", retry_after_s=3),
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
        assert response.headers["content-type"].startswith("text/event-stream")
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
        missing = self.whole._replace(path=self.frontend.paths[0].rstrip("/") + "/no-such-route")
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
