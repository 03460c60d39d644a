"""Makes, keeps and finds responses: everything between the routes and the pure codec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mlx_core.api import (
    ContextLengthExceeded,
    EngineClient,
    GenerateRequest,
    InvalidRequest,
    NotFound,
    Settings,
)
from vllm_mlx_protocols.database import DatabaseFailed
from vllm_mlx_protocols.openai.errors import model_not_found
from vllm_mlx_protocols.reading import read

from .background import Background
from .items import ReferenceItem, kind, new_id, normalised
from .job import Job
from .recorder import Recorder
from .request import check, to_generate
from .response import new_response
from .schema import ResponsesRequest
from .store import Store, Stored
from .tools import Toolbox, to_toolbox

_USABLE = frozenset({"completed", "incomplete"})


class ResponseService:
    """The responses of one server. ``owner`` is whose key it is; nobody sees what is another's."""

    def __init__(self, engine: EngineClient, settings: Settings, store: Store) -> None:
        self.store = store
        self.background = Background(store)
        self._engine = engine
        self._settings = settings

    async def begin(self, body: ResponsesRequest, owner: str | None, trace_id: str | None) -> Job:
        """Ask the engine. Raises RequestError before anything is generated."""
        wanted, toolbox, items = await self._wanted(body, owner, trace_id)
        response = new_response(body, toolbox, response_id=wanted.request_id, model=self._model(body.model))
        try:
            outputs = await self._engine.generate(wanted)
        except ContextLengthExceeded as error:
            raise _too_long(body, error) from error
        recorder = Recorder(
            custom=toolbox.custom,
            seals=body.includes("reasoning.encrypted_content"),
            summarises=body.wants_summary,
        )
        return Job(owner or "", response, items, recorder, outputs)

    async def count(self, body: ResponsesRequest, owner: str | None) -> int:
        """Return how many tokens the prompt has. Raises RequestError as ``begin`` does."""
        wanted, _, _ = await self._wanted(body, owner, None)
        self._model(body.model)
        return len((await self._engine.render(wanted)).token_ids)

    async def save(self, job: Job) -> None:
        """Store a finished response, if the client wants that. If it cannot be, the response says so itself."""
        response = job.conclude()
        if not response["store"]:
            return
        try:
            response["store"] = await self.store.put(job.owner, response, job.items)
        except DatabaseFailed:
            response["store"] = False

    async def find(self, owner: str | None, response_id: str) -> Stored:
        """Return a stored response. Raises NotFound."""
        found = await self.store.get(owner or "", response_id)
        if found is None:
            raise _missing(response_id)
        ended = self.background.find(owner or "", response_id)
        return found if ended is None else Stored(ended, found.input)

    async def delete(self, owner: str | None, response_id: str) -> None:
        """Forget a response, and end it if it runs. Raises NotFound."""
        ran = await self.background.cancel(owner or "", response_id)
        if not await self.store.delete(owner or "", response_id) and not ran:
            raise _missing(response_id)

    async def cancel(self, owner: str | None, response_id: str) -> dict[str, Any]:
        """End a background response and return it; one that has ended stays as it is. Raises NotFound."""
        await self.background.cancel(owner or "", response_id)
        found = await self.find(owner, response_id)
        if not found.response["background"]:
            raise InvalidRequest("Only responses made with background: true can be cancelled.", param="response_id")
        return found.response

    async def _wanted(
        self, body: ResponsesRequest, owner: str | None, trace_id: str | None
    ) -> tuple[GenerateRequest, Toolbox, list[dict[str, Any]]]:
        self._model(body.model)
        check(body, self._settings)
        toolbox = to_toolbox(body.tools, body.tool_choice)
        history = await self._history(owner, body.previous_response_id)
        items = normalised(await self._resolved(owner, body.input))
        wanted = to_generate(body, toolbox, history, items, request_id=new_id("resp"), user=owner, trace_id=trace_id)
        return wanted, toolbox, items

    def _model(self, name: str) -> str:
        try:
            return self._engine.model(name).id
        except NotFound as error:
            raise model_not_found(error) from error

    async def _history(self, owner: str | None, previous: str | None) -> list[dict[str, Any]]:
        """Return what was said up to and with the previous response."""
        if previous is None:
            return []
        chain = await self.store.chain(owner or "", previous)
        if chain is None:
            raise InvalidRequest(
                f"Previous response with id '{previous[:100]}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        if chain[-1].response["status"] not in _USABLE:
            status = chain[-1].response["status"]
            raise InvalidRequest(
                f"previous_response_id: that response is {status}, not completed.", param="previous_response_id"
            )
        return [item for each in chain for item in (*each.input, *each.response["output"])]

    async def _resolved(
        self, owner: str | None, given: str | Sequence[dict[str, Any]] | None
    ) -> str | list[dict[str, Any]] | None:
        """Return the input with the items that it only refers to."""
        if given is None or isinstance(given, str):
            return given
        items = []
        for index, item in enumerate(given):
            if kind(item) == "item_reference":
                reference = read(ReferenceItem, item, f"input[{index}]").id
                found = await self.store.item(owner or "", reference)
                if found is None:
                    param = f"input[{index}].id"
                    raise InvalidRequest(f"{param}: Item with id '{reference[:100]}' not found.", param=param)
                item = found
            items.append(item)
        return items


def _too_long(body: ResponsesRequest, error: ContextLengthExceeded) -> ContextLengthExceeded:
    if body.truncation == "auto":
        message = f"{error.message} truncation: auto cannot help: this server drops nothing of a conversation."
        return ContextLengthExceeded(message, param="truncation")
    return ContextLengthExceeded(error.message, param="input")


def _missing(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:100]}' not found.", param="response_id")
