"""How tests ask for responses."""

from __future__ import annotations

import json

PATH = "/v1/responses"


async def ask(client, **fields):
    response = await client.post(PATH, json={"input": "Hi", **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def error(client, **fields):
    response = await client.post(PATH, json={"input": "Hi", **fields})
    return response.status_code, response.json()["error"]


async def stream(client, **fields):
    """Return the events of a stream; checks names and numbers."""
    response = await client.post(PATH, json={"input": "Hi", "stream": True, **fields})
    assert response.status_code == 200, response.text
    events = []
    for block in response.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def without_ids(value):
    """Return an object without what is new each time."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in ("id", "created_at", "completed_at")}
    return [without_ids(each) for each in value] if isinstance(value, list) else value
