"""How tests ask the OpenAI front-end."""

from __future__ import annotations

import json

from vllm_mlx_core.api import TokenLogprob, TokenLogprobs

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}


async def stream(client, path=CHAT, **fields):
    """Return the events of a stream: its objects, and "[DONE]"."""
    body = {"messages": [USER]} if path == CHAT else {}
    response = await client.post(path, json={**body, "stream": True, **fields})
    assert response.status_code == 200, response.text
    assert response.text.endswith("\n\n")
    data = [line.removeprefix("data: ") for line in response.text.split("\n\n")[:-1]]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


async def ask(client, path=CHAT, **fields):
    body = {"messages": [USER]} if path == CHAT else {}
    response = await client.post(path, json={**body, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def error(client, path=CHAT, **fields):
    body = {"messages": [USER]} if path == CHAT else {}
    response = await client.post(path, json={**body, **fields})
    return response.status_code, response.json()["error"]


def token(text, logprob=-0.5, top=()):
    return TokenLogprobs(TokenLogprob(1, text, logprob), [TokenLogprob(2, each, lp) for each, lp in top])
