"""The routes: HTTP in, the engine asked, HTTP out. What the bodies mean is said elsewhere."""

from __future__ import annotations

import secrets

from fastapi import APIRouter, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from vllm_mlx_core.api import ClientDisconnected, EngineClient, EventStream, Settings
from vllm_mlx_protocols import http

from .request import shows_thinking, to_generate
from .response import TokenCount, to_response
from .schema import CountTokensRequest, MessagesRequest
from .stream import MessageStreamEncoder


def add_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add both routes to those of ``/v1/messages``."""

    @router.post("", operation_id="createMessage", responses=http.documented_stream())
    async def create_message(request: Request, body: MessagesRequest) -> Response:
        """Answer a conversation."""
        model = engine.model(body.model).id
        message_id = f"msg_{secrets.token_hex(12)}"
        caller = http.caller(request)
        outputs = await engine.generate(to_generate(body, settings, request_id=message_id, **caller._asdict()))
        stop_sequences, show_thinking = body.stop_sequences or (), shows_thinking(body)
        if body.stream:
            encoder = MessageStreamEncoder(
                message_id=message_id,
                model=model,
                prompt_tokens=outputs.prompt_tokens,
                stop_sequences=stop_sequences,
                show_thinking=show_thinking,
            )
            return _Named(http.StreamingEvents(EventStream(outputs, encoder)), caller.trace_id)
        try:
            (completion,) = await http.gather(request, outputs, 1)
        except ClientDisconnected:
            return http.nobody()
        message = to_response(
            completion,
            message_id=message_id,
            model=model,
            prompt_tokens=outputs.prompt_tokens,
            stop_sequences=stop_sequences,
            show_thinking=show_thinking,
        )
        return _Named(http.JSONBytes(message), caller.trace_id)

    @router.post("/count_tokens", operation_id="countMessageTokens")
    async def count_tokens(request: Request, body: CountTokensRequest) -> Response:
        """Count the tokens of the prompt that generating would begin with."""
        engine.model(body.model)
        caller = http.caller(request)
        request_id = f"count_{secrets.token_hex(12)}"
        prompt = await engine.render(to_generate(body, settings, request_id=request_id, **caller._asdict()))
        return _Named(http.JSONBytes(TokenCount(len(prompt.token_ids))), caller.trace_id)


class _Named(Response):
    """A response that says the request's id under the name that Anthropic's clients read as well."""

    def __init__(self, response: Response, request_id: str | None) -> None:
        super().__init__()
        self._response = response
        self._request_id = request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""

        async def name(message: Message) -> None:
            if message["type"] == "http.response.start" and self._request_id is not None:
                MutableHeaders(scope=message)["request-id"] = self._request_id
            await send(message)

        await self._response(scope, receive, name)
