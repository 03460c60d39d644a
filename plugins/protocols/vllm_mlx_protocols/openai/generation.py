"""A request to one of the generating endpoints that the engine has taken, whoever waits for its answer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_mlx_core.api import Completion, EngineClient, OutputStream, Settings, StreamEncoder
from vllm_mlx_protocols.http import Caller

from . import chat_request, chat_response, chat_stream, text_request, text_response, text_stream
from .chunks import ChunkFrame
from .merge import MergedOutputs
from .models import find
from .reasoning import reasoning_fields
from .schema import ChatCompletionRequest, CompletionRequest


@dataclass(frozen=True, slots=True)
class Generation:
    """What runs, and how to answer with it: ``encoder`` makes a stream's, ``respond`` a whole body for JSON."""

    outputs: OutputStream
    count: int
    """Completions among the outputs."""
    encoder: Callable[[], StreamEncoder]
    respond: Callable[[Sequence[Completion]], Any]


async def start_chat(
    engine: EngineClient, settings: Settings, body: ChatCompletionRequest, caller: Caller
) -> Generation:
    """Begin to answer a conversation. Raises RequestError before anything is generated."""
    model = find(engine, body.model).id
    response_id, created = _identity("chatcmpl")
    wanted = chat_request.to_generate(body, settings, request_id=response_id, **caller._asdict())
    outputs = await engine.generate(wanted)
    echo = chat_request.echo(body)
    shown = reasoning_fields(settings, include=body.include_reasoning is not False)

    def encoder() -> StreamEncoder:
        frame = ChunkFrame(
            chat_stream.OBJECT, response_id=response_id, created=created, model=model, include_usage=body.include_usage
        )
        return chat_stream.ChatStreamEncoder(
            frame, prompt_tokens=outputs.prompt_tokens, n=wanted.n, reasoning_fields=shown, echo=echo
        )

    def respond(completions: Sequence[Completion]) -> Any:
        return chat_response.to_response(
            completions,
            response_id=response_id,
            created=created,
            model=model,
            prompt_tokens=outputs.prompt_tokens,
            with_logprobs=bool(body.logprobs),
            reasoning_fields=shown,
            echo=echo,
        )

    return Generation(outputs, wanted.n, encoder, respond)


async def start_text(engine: EngineClient, settings: Settings, body: CompletionRequest, caller: Caller) -> Generation:
    """Begin to continue one text or several. Raises RequestError before anything is generated."""
    model = find(engine, body.model).id
    response_id, created = _identity("cmpl")
    wanted = text_request.to_generate(body, settings, request_id=response_id, **caller._asdict())
    generated = wanted[0].n
    streams: list[OutputStream] = []
    merged = MergedOutputs(streams, generated)
    try:
        for each in wanted:
            streams.append(await engine.generate(each))
        echoes = text_request.echoes(body, lambda tokens: engine.detokenize(model, tokens))
    except BaseException:
        await merged.aclose()
        raise
    outputs = streams[0] if len(streams) == 1 else merged

    def encoder() -> StreamEncoder:
        frame = ChunkFrame(
            text_stream.OBJECT, response_id=response_id, created=created, model=model, include_usage=body.include_usage
        )
        return text_stream.TextStreamEncoder(
            frame, prompt_tokens=outputs.prompt_tokens, n=generated, echoes=echoes, logprobs=body.logprobs
        )

    def respond(completions: Sequence[Completion]) -> Any:
        return text_response.to_response(
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

    return Generation(outputs, len(wanted) * generated, encoder, respond)


def _identity(prefix: str) -> tuple[str, int]:
    return f"{prefix}-{secrets.token_hex(12)}", int(time.time())
