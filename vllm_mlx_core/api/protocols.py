"""Protocol front-ends: how clients of one wire protocol reach the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .errors import RequestError
from .messages import ActiveRequest, GenerateRequest, ModelInfo, ModelStats, Output, RenderedPrompt
from .settings import Settings

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.responses import Response


class OutputStream(Protocol):
    """The outputs of one request, in order. Iterate once, and always close: closing early aborts the request."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the rendered prompt."""
        ...

    def __aiter__(self) -> AsyncIterator[Sequence[Output]]:
        """Iterate over what each engine step added; raises RequestError if the request fails midway."""
        ...

    async def aclose(self) -> None:
        """Abort whatever still runs and free it. Safe to call at any time, more than once."""
        ...


class EngineClient(Protocol):
    """What a front-end may ask of the engines. Event-loop thread only."""

    def models(self) -> Sequence[ModelInfo]:
        """Return the served models, the default one first."""
        ...

    def model(self, name: str) -> ModelInfo:
        """Return the model served under ``name`` (or an alias, or "default"). Raises NotFound."""
        ...

    async def generate(self, request: GenerateRequest) -> OutputStream:
        """Check, render and queue a request.

        Raises RequestError (bad input, unknown model, full queue) before anything is generated, so that a front-end
        can still choose the status.
        """
        ...

    async def render(self, request: GenerateRequest) -> RenderedPrompt:
        """Render the prompt that ``generate`` would use, without generating. Raises as ``generate`` does."""
        ...

    def detokenize(self, model: str, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, special tokens included.

        Raises NotFound for the model, InvalidRequest for an id that is not in its vocabulary.
        """
        ...

    def active_requests(self) -> Sequence[ActiveRequest]:
        """Return what runs and waits, the oldest first."""
        ...

    def cancel(self, request_id: str, *, user: str | None = None) -> bool:
        """End the requests with this ``request_id`` or ``trace_id`` and return whether there was one.

        Whoever waits for their outputs gets RequestCancelled. Only requests of ``user`` are found, unless it is None.
        """
        ...

    async def stats(self) -> Sequence[ModelStats]:
        """Ask every model's engine what it holds, the default model's first. Answered between two steps."""
        ...

    async def clear_cache(self) -> Mapping[str, int]:
        """Drop what every model's prefix cache holds and no request uses; return the bytes freed by model."""
        ...

    def health(self) -> Mapping[str, Any]:
        """Return a JSON object with ``status`` ("ok" or "error") and one entry for each model under ``models``."""
        ...


class ProtocolFrontend(ABC):
    """Speaks one wire protocol. Made once per server, on the event-loop thread, after the models are known.

    A front-end may observe as a plugin does: a method that is marked ``@hookimpl`` is called as that hook.
    """

    paths: ClassVar[tuple[str, ...]] = ()
    """Path prefixes whose errors (unknown route, wrong method, bad key) are rendered by this front-end.

    ``/`` is the address itself only.
    """
    assumes_json: ClassVar[bool] = False
    """Whether a body under ``paths`` that does not say what it is, as ``curl -d`` sends it, is read as JSON.

    Not from web pages: without the header they may send to any server, whatever it says of other origins.
    """

    def __init__(self, engine: EngineClient, settings: Settings) -> None:
        self.engine = engine
        self.settings = settings

    @abstractmethod
    def router(self) -> APIRouter:
        """Return the routes. Called once."""

    @abstractmethod
    def render_error(self, error: RequestError) -> Response:
        """Return ``error`` in the protocol's own shape and status."""

    async def drain(self) -> None:  # noqa: B027 - most have nothing that runs for nobody
        """Return when what runs on behalf of no open connection has ended. Nothing by default.

        Called when the server is asked to stop, while requests still run; cancelled when their time is over.
        """

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Return a context that is entered when the server starts and left when it stops."""
        return _nothing()


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield
