"""The generating routes: HTTP in, the engine asked, HTTP out. What the bodies mean is said elsewhere."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import ClientDisconnected, EngineClient, EventStream, Settings
from vllm_mlx_protocols import http

from .generation import Generation, start_chat, start_text
from .schema import ChatCompletionRequest, CompletionRequest


def add_generating_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add chat completions and completions to the routes of ``/v1``."""

    @router.post("/chat/completions", operation_id="createChatCompletion", responses=http.documented_stream())
    async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response:
        """Answer a conversation."""
        generation = await start_chat(engine, settings, body, http.caller(request))
        return await _answer(request, generation, stream=bool(body.stream))

    @router.post("/completions", operation_id="createCompletion", responses=http.documented_stream())
    async def create_completion(request: Request, body: CompletionRequest) -> Response:
        """Continue a text."""
        generation = await start_text(engine, settings, body, http.caller(request))
        return await _answer(request, generation, stream=bool(body.stream))


async def _answer(request: Request, generation: Generation, *, stream: bool) -> Response:
    if stream:
        return http.StreamingEvents(EventStream(generation.outputs, generation.encoder()))
    try:
        completions = await http.gather(request, generation.outputs, generation.count)
    except ClientDisconnected:
        return http.nobody()
    return http.JSONBytes(generation.respond(completions))
