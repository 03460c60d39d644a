"""Calls and their results, matched: clients leave out ids, use one twice, send numbers, or answer to an unknown one."""

from __future__ import annotations

from collections.abc import Iterator

from .messages import Message


def pair(messages: list[Message]) -> None:
    """Give every call an id of its own within its message, and every result the id and name of its call.

    Results are matched by id; those of no known id go to the calls that are left, in order. A name that the client
    gave stays. What follows no call is left alone. Mutates the messages.
    """
    by_id: dict[str, Message] = {}
    count = 0
    for calls, results in _runs(messages):
        taken: set[str] = set()
        for call in calls:
            call_id = call.get("id") or f"call_{count}"
            while call_id in taken:
                call_id += "_"
            call["id"] = call_id
            taken.add(call_id)
            count += 1
        _match(calls, results, by_id)
        by_id |= {call["id"]: call for call in calls}


def _runs(messages: list[Message]) -> Iterator[tuple[list[Message], list[Message]]]:
    """Yield the calls of each message, or none, with the results that follow it."""
    calls: list[Message] = []
    results: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(message)
            continue
        yield calls, results
        calls, results = message.get("tool_calls", []), []
    yield calls, results


def _match(calls: list[Message], results: list[Message], earlier: dict[str, Message]) -> None:
    open_calls = {call["id"]: call for call in calls}
    given = dict(open_calls)
    unmatched: list[Message] = []
    for result in results:
        call = open_calls.pop(result.get("tool_call_id", ""), None)
        if call is None:
            unmatched.append(result)
        else:
            result.setdefault("name", call["function"]["name"])
    for result in unmatched:
        call_id = result.get("tool_call_id", "")
        left = next(iter(open_calls), None)
        if left is not None:
            call = open_calls.pop(left)
            result["tool_call_id"] = left
        else:
            call = given.get(call_id) or earlier.get(call_id)
        if call is not None:
            result.setdefault("name", call["function"]["name"])
