"""The generating routes: HTTP in, the engine asked, HTTP out. What the bodies mean is said elsewhere."""

from __future__ import annotations

import secrets
import time

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import ClientDisconnected, EngineClient, EventStream, Settings
from vllm_mlx_protocols import http

from .names import find
from .request import load_reason, to_generate
from .response import Kind, answer, whole
from .schema import ChatRequest, GenerateRequest
from .stream import NDJSON, LineEncoder
from .timing import TimedOutputs


def add_generating_routes(router: APIRouter, engine: EngineClient, settings: Settings) -> None:
    """Add chat and generate to the routes."""

    async def respond(kind: Kind, request: Request, body: ChatRequest | GenerateRequest) -> Response:
        started = time.monotonic_ns()
        model = find(engine, body.model)
        if reason := load_reason(body):
            return http.JSONBytes(answer(kind, model.id, ending={"done_reason": reason}))
        request_id = f"ollama-{secrets.token_hex(12)}"
        wanted = to_generate(body, model, settings, request_id=request_id, caller=http.caller(request))
        outputs = TimedOutputs(await engine.generate(wanted), started)
        show_thinking = body.think is not False
        if body.stream is not False:
            encoder = LineEncoder(kind, model.id, outputs, show_thinking=show_thinking)
            return http.StreamingEvents(EventStream(outputs, encoder, content_type=NDJSON))
        try:
            (completion,) = await http.gather(request, outputs, 1)
        except ClientDisconnected:
            return http.nobody()
        metrics = outputs.metrics(completion.usage)
        return http.JSONBytes(whole(kind, model.id, completion, metrics, show_thinking=show_thinking))

    @router.post("/api/chat", operation_id="ollamaChat", responses=http.documented_stream(NDJSON))
    async def chat(request: Request, body: ChatRequest) -> Response:
        """Answer a conversation."""
        return await respond("chat", request, body)

    @router.post("/api/generate", operation_id="ollamaGenerate", responses=http.documented_stream(NDJSON))
    async def generate(request: Request, body: GenerateRequest) -> Response:
        """Answer a prompt, continue a text, or fill a gap in one."""
        return await respond("generate", request, body)
