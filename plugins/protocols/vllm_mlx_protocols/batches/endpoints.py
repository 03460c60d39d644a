"""What a line may ask for: the endpoints, and how each is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from vllm_mlx_core.api import EngineClient, InvalidRequest, Settings, Usage
from vllm_mlx_protocols.http import Caller, collect
from vllm_mlx_protocols.openai.generation import Generation, start_chat, start_text
from vllm_mlx_protocols.openai.schema import ChatCompletionRequest, CompletionRequest
from vllm_mlx_protocols.openai.usage import UsageReport
from vllm_mlx_protocols.reading import read

from .places import Places

B = TypeVar("B", ChatCompletionRequest, CompletionRequest)


class Reply(NamedTuple):
    """The body of an answer, and what it took."""

    body: Any
    usage: Usage


class Endpoint(Protocol):
    """Answers the body of one line."""

    def __call__(
        self, engine: EngineClient, settings: Settings, body: Mapping[str, Any], caller: Caller, places: Places
    ) -> Awaitable[Reply]:
        """Return the answer, for which it takes as many places as it needs. Raises RequestError."""
        ...


def generating(
    schema: type[B], start: Callable[[EngineClient, Settings, B, Caller], Awaitable[Generation]]
) -> Endpoint:
    """Return an endpoint that generates."""

    async def answer(
        engine: EngineClient, settings: Settings, body: Mapping[str, Any], caller: Caller, places: Places
    ) -> Reply:
        if body.get("stream"):
            raise InvalidRequest("stream: the answers of a batch are not streamed.", param="stream")
        request = read(schema, body, "")
        async with places.hold(request.num_completions):
            generation = await start(engine, settings, request, caller)
            response = generation.respond(await collect(generation.outputs, generation.count))
        return Reply(response, _usage(response.usage))

    return answer


ENDPOINTS: Mapping[str, Endpoint] = {
    "/v1/chat/completions": generating(ChatCompletionRequest, start_chat),
    "/v1/completions": generating(CompletionRequest, start_text),
}


def _usage(report: UsageReport) -> Usage:
    return Usage(
        prompt_tokens=report.prompt_tokens,
        completion_tokens=report.completion_tokens,
        cached_tokens=report.prompt_tokens_details.cached_tokens,
        reasoning_tokens=report.completion_tokens_details.reasoning_tokens,
    )
