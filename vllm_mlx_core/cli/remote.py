"""Answers from a server that speaks the OpenAI protocol."""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import ReasoningDelta, TextDelta, UsageError, VllmMlxError

from .answering import Answerer, Finished, Piece

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0


class ServerFailed(VllmMlxError):
    """The server cannot be reached, refused the request or broke off."""


@contextmanager
def connect(
    runner: asyncio.Runner, url: str, *, model: str | None, api_key: str | None, body: Mapping[str, Any]
) -> Iterator[Answerer]:
    """Hand out an answerer that asks the server at ``url`` (with or without ``/v1``) on the runner's event loop.

    ``model`` None takes the first one the server lists. ``body`` is merged into every request. Raises ServerFailed, or
    UsageError for an address that cannot be one.
    """
    import httpx

    base = url if url.endswith("/v1") else f"{url}/v1"
    try:
        host = httpx.URL(base).host
    except httpx.InvalidURL as error:
        raise UsageError(f"--url {url}: {error}.") from error
    # A long prompt may keep the server silent for minutes: the user has Ctrl-C, so reading never times out.
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx.AsyncClient(timeout=timeout, headers=headers, trust_env=not _is_local(host))
    try:
        if model is None:
            model = runner.run(_first_model(client, base))
        yield _Server(client, base, {**body, "model": model, "stream": True})
    finally:
        runner.run(client.aclose())


class _Server:
    def __init__(self, client: httpx.AsyncClient, base: str, body: Mapping[str, Any]) -> None:
        self._client = client
        self._base = base
        self._body = body
        self.name = f"{body['model']} at {base}"

    async def answer(self, messages: Sequence[Mapping[str, Any]]) -> AsyncGenerator[Piece, None]:
        """See ``Answerer.answer``. Closing early drops the connection, which stops the server's work."""
        import httpx

        request = self._client.build_request(
            "POST", f"{self._base}/chat/completions", json={**self._body, "messages": list(messages)}
        )
        try:
            response = await self._client.send(request, stream=True)
            async with aclosing(response):
                if response.is_error:
                    await response.aread()
                    raise ServerFailed(_refusal(response))
                async with aclosing(_pieces(response)) as pieces:
                    async for piece in pieces:
                        yield piece
        except httpx.HTTPError as error:
            raise ServerFailed(_unreachable(self._base, error)) from error


async def _pieces(response: httpx.Response) -> AsyncGenerator[Piece, None]:
    finished = False
    async for line in response.aiter_lines():
        field, _, data = line.partition(":")
        if field != "data":
            continue
        data = data.strip()
        if data == "[DONE]":
            return
        event = _json_object(data)
        if event is None:
            raise ServerFailed("the server sent an event that is not a JSON object")
        if error := event.get("error"):
            raise ServerFailed(_message(error))
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            if reasoning := delta.get("reasoning_content") or delta.get("reasoning"):
                yield ReasoningDelta(reasoning)
            if text := delta.get("content"):
                yield TextDelta(text)
            if reason := choice.get("finish_reason"):
                finished = True
                yield Finished(reason)
    if not finished:
        raise ServerFailed("the server broke off in the middle of the answer")


async def _first_model(client: httpx.AsyncClient, base: str) -> str:
    import httpx

    try:
        response = await client.get(f"{base}/models")
    except httpx.HTTPError as error:
        raise ServerFailed(_unreachable(base, error)) from error
    if response.is_error:
        raise ServerFailed(_refusal(response))
    models = (_json_object(response.text) or {}).get("data") or ()
    for model in models:
        return str(model["id"])
    raise ServerFailed(f"the server at {base} lists no model; name one")


def _refusal(response: httpx.Response) -> str:
    error = (_json_object(response.text) or {}).get("error")
    return _message(error) if error else f"the server answered with status {response.status_code}"


def _message(error: object) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _unreachable(base: str, error: Exception) -> str:
    return f"cannot talk to {base}: {str(error) or type(error).__name__}"


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_local(host: str) -> bool:
    """Return whether ``host`` is this machine, which no proxy of the environment can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
