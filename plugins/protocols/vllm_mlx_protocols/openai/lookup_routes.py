"""The routes that generate nothing: models, and what a model makes of a text."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from vllm_mlx_core.api import EngineClient, InvalidRequest, ModelInfo
from vllm_mlx_protocols import http

from . import tokens
from .models import find, to_list, to_model
from .schema import DetokenizeRequest, TokenizeRequest

_TOKENS_PER_TURN = 1024


def add_lookup_routes(router: APIRouter, engine: EngineClient) -> None:
    """Add models, tokenize and detokenize to the routes of ``/v1``."""

    @router.get("/models", operation_id="listModels")
    async def list_models() -> Response:
        """List the served models."""
        return http.JSONBytes(to_list(engine.models()))

    @router.get("/models/{model:path}", operation_id="retrieveModel")
    async def retrieve_model(model: str) -> Response:
        """Describe one model; its id may hold slashes."""
        return http.JSONBytes(to_model(find(engine, model)))

    @router.post("/tokenize", operation_id="tokenize")
    async def tokenize(request: Request, body: TokenizeRequest) -> Response:
        """Return the token ids of a text or a conversation: those that generating would begin with."""
        model = find(engine, body.model)
        request_id = f"tok-{secrets.token_hex(12)}"
        prompt = await engine.render(tokens.to_generate(body, request_id=request_id, **http.caller(request)._asdict()))
        texts = await _texts(engine, model, prompt.token_ids) if body.return_token_strs else None
        return http.JSONBytes(tokens.to_response(prompt, model, texts))

    @router.post("/detokenize", operation_id="detokenize")
    async def detokenize(body: DetokenizeRequest) -> Response:
        """Return the text of token ids."""
        return http.JSONBytes(tokens.Detokenized(engine.detokenize(find(engine, body.model).id, body.tokens)))


async def _texts(engine: EngineClient, model: ModelInfo, token_ids: Sequence[int]) -> list[str]:
    """Return each token's text. Others get a turn now and then. Raises InvalidRequest if there are too many."""
    if len(token_ids) > model.context_length:
        raise InvalidRequest(
            "return_token_strs: the prompt has more tokens than the model's context.", param="return_token_strs"
        )
    texts = []
    for number, token_id in enumerate(token_ids):
        if number % _TOKENS_PER_TURN == 0:
            await asyncio.sleep(0)
        texts.append(engine.detokenize(model.id, [token_id]))
    return texts
