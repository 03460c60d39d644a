"""The routes: HTTP in, the engine asked, HTTP out. What the bodies mean is said elsewhere."""

from __future__ import annotations

import secrets
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import (
    ClientDisconnected,
    EngineClient,
    EventStream,
    ModelInfo,
    NotFound,
    OutputStream,
    Settings,
    StreamEncoder,
)
from vllm_mlx_protocols import http

from . import chat_request, chat_response, chat_stream, text_request, text_response, text_stream
from .chunks import ChunkFrame
from .errors import model_not_found
from .merge import MergedOutputs
from .models import to_list, to_model
from .reasoning import reasoning_fields
from .schema import ChatCompletionRequest, CompletionRequest

_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "What is wrong with the request, in OpenAI's error envelope."},
    "5XX": {"description": "What the server could not do, in OpenAI's error envelope."},
}
"""Documented, or FastAPI would document its own 422, which no client ever gets."""


def openai_router(engine: EngineClient, settings: Settings) -> APIRouter:
    """Return the routes of ``/v1``."""
    router = APIRouter(prefix="/v1", tags=["openai"], default_response_class=Response, responses=_ERRORS)

    def find(name: str) -> ModelInfo:
        try:
            return engine.model(name)
        except NotFound as error:
            raise model_not_found(error) from error

    @router.post("/chat/completions", operation_id="createChatCompletion")
    async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response:
        """Answer a conversation."""
        model = find(body.model).id
        response_id, created = _identity("chatcmpl")
        wanted = chat_request.to_generate(body, settings, request_id=response_id, user=_user(request))
        outputs = await engine.generate(wanted)
        shown = reasoning_fields(settings, include=body.include_reasoning is not False)
        if body.stream:
            frame = ChunkFrame(
                chat_stream.OBJECT,
                response_id=response_id,
                created=created,
                model=model,
                include_usage=body.include_usage,
            )
            encoder = chat_stream.ChatStreamEncoder(
                frame, prompt_tokens=outputs.prompt_tokens, n=wanted.n, reasoning_fields=shown
            )
            return _stream(outputs, encoder)
        try:
            completions = await http.gather(request, outputs, wanted.n)
        except ClientDisconnected:
            return _nobody()
        return http.JSONBytes(
            chat_response.to_response(
                completions,
                response_id=response_id,
                created=created,
                model=model,
                prompt_tokens=outputs.prompt_tokens,
                with_logprobs=bool(body.logprobs),
                reasoning_fields=shown,
            )
        )

    @router.post("/completions", operation_id="createCompletion")
    async def create_completion(request: Request, body: CompletionRequest) -> Response:
        """Continue a text."""
        model = find(body.model).id
        response_id, created = _identity("cmpl")
        wanted = text_request.to_generate(body, settings, request_id=response_id, user=_user(request))
        n = wanted[0].n
        echoes = text_request.echoes(body)
        streams: list[OutputStream] = []
        outputs = MergedOutputs(streams, n)
        try:
            for each in wanted:
                streams.append(await engine.generate(each))
        except BaseException:
            await outputs.aclose()
            raise
        if body.stream:
            frame = ChunkFrame(
                text_stream.OBJECT,
                response_id=response_id,
                created=created,
                model=model,
                include_usage=body.include_usage,
            )
            encoder = text_stream.TextStreamEncoder(
                frame, prompt_tokens=outputs.prompt_tokens, n=n, echoes=echoes, logprobs=body.logprobs
            )
            return _stream(streams[0] if len(streams) == 1 else outputs, encoder)
        try:
            completions = await http.gather(request, outputs, len(echoes))
        except ClientDisconnected:
            return _nobody()
        return http.JSONBytes(
            text_response.to_response(
                completions,
                response_id=response_id,
                created=created,
                model=model,
                prompt_tokens=outputs.prompt_tokens,
                n=n,
                echoes=echoes,
                logprobs=body.logprobs,
            )
        )

    @router.get("/models", operation_id="listModels")
    async def list_models() -> Response:
        """List the served models."""
        return http.JSONBytes(to_list(engine.models()))

    @router.get("/models/{model:path}", operation_id="retrieveModel")
    async def retrieve_model(model: str) -> Response:
        """Describe one model; its id may hold slashes."""
        return http.JSONBytes(to_model(find(model)))

    return router


def _stream(outputs: OutputStream, encoder: StreamEncoder) -> Response:
    return http.StreamingEvents(EventStream(outputs, encoder))


def _identity(prefix: str) -> tuple[str, int]:
    return f"{prefix}-{secrets.token_hex(12)}", int(time.time())


def _user(request: Request) -> str | None:
    """Return whom the server recognised by their key."""
    user: str | None = request.scope.get("state", {}).get("user")
    return user


def _nobody() -> Response:
    """Return what nobody will read; 499 is what access logs call a client that left."""
    return Response(status_code=499)
