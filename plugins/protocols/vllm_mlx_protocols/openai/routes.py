"""The generating routes: HTTP in, the engine asked, HTTP out. What the bodies mean is said elsewhere."""

from __future__ import annotations

import secrets
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import (
    ClientDisconnected,
    EngineClient,
    EventStream,
    OutputStream,
    Settings,
    StreamEncoder,
)
from vllm_mlx_protocols import http

from . import chat_request, chat_response, chat_stream, text_request, text_response, text_stream
from .chunks import ChunkFrame
from .merge import MergedOutputs
from .models import find
from .reasoning import reasoning_fields
from .schema import ChatCompletionRequest, CompletionRequest


def add_generating_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add chat completions and completions to the routes of ``/v1``."""

    @router.post("/chat/completions", operation_id="createChatCompletion")
    async def create_chat_completion(request: Request, body: ChatCompletionRequest) -> Response:
        """Answer a conversation."""
        model = find(engine, body.model).id
        response_id, created = _identity("chatcmpl")
        wanted = chat_request.to_generate(body, settings, request_id=response_id, **http.caller(request)._asdict())
        outputs = await engine.generate(wanted)
        echo = chat_request.echo(body)
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
                frame, prompt_tokens=outputs.prompt_tokens, n=wanted.n, reasoning_fields=shown, echo=echo
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
                echo=echo,
            )
        )

    @router.post("/completions", operation_id="createCompletion")
    async def create_completion(request: Request, body: CompletionRequest) -> Response:
        """Continue a text."""
        model = find(engine, body.model).id
        response_id, created = _identity("cmpl")
        wanted = text_request.to_generate(body, settings, request_id=response_id, **http.caller(request)._asdict())
        generated = wanted[0].n
        streams: list[OutputStream] = []
        outputs = MergedOutputs(streams, generated)
        try:
            for each in wanted:
                streams.append(await engine.generate(each))
            echoes = text_request.echoes(body, lambda tokens: engine.detokenize(model, tokens))
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
                frame, prompt_tokens=outputs.prompt_tokens, n=generated, echoes=echoes, logprobs=body.logprobs
            )
            return _stream(streams[0] if len(streams) == 1 else outputs, encoder)
        try:
            completions = await http.gather(request, outputs, len(wanted) * generated)
        except ClientDisconnected:
            return _nobody()
        return http.JSONBytes(
            text_response.to_response(
                completions,
                response_id=response_id,
                created=created,
                model=model,
                prompt_tokens=outputs.prompt_tokens,
                n=body.n or 1,
                generated=generated,
                echoes=echoes,
                logprobs=body.logprobs,
            )
        )


def _stream(outputs: OutputStream, encoder: StreamEncoder) -> Response:
    return http.StreamingEvents(EventStream(outputs, encoder))


def _identity(prefix: str) -> tuple[str, int]:
    return f"{prefix}-{secrets.token_hex(12)}", int(time.time())


def _nobody() -> Response:
    """Return what nobody will read; 499 is what access logs call a client that left."""
    return Response(status_code=499)
