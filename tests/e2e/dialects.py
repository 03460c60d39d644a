"""One conversation in the words of every chat protocol, so that a test can say it once for all of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import httpx
import pytest

Json = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """What a client reads in an answer."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str
    """In the words of the protocol."""


class Dialect(ABC):
    """How one protocol asks and answers."""

    name: ClassVar[str]
    path: ClassVar[str]
    conversation: ClassVar[str] = "messages"
    """The field with the messages."""
    limit: ClassVar[str] = "max_tokens"
    stop: ClassVar[str | None] = "stop"
    defaults: ClassVar[Json] = {}
    natural: ClassVar[str] = "stop"
    too_long: ClassVar[str] = "length"
    for_calls: ClassVar[str] = "tool_calls"
    stopped: ClassVar[str] = "stop"
    """How an answer ends: by itself, at the limit, with calls, at a stop string."""
    forced: ClassVar[Any] = "required"
    """The ``tool_choice`` that demands a call; None if the protocol has none."""

    def body(self, said: str | Sequence[Json], model: str = "scripted", **fields: Any) -> Json:
        """Return the body of a request with the messages, or with one of the user's."""
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
        return {"model": model, **self.defaults, self.conversation: messages, **fields}

    def option(self, name: str, value: Any) -> Json:
        """Return the fields that set a sampling option."""
        return {name: value}

    def tool(self, name: str, schema: Json) -> Json:
        """Return the declaration of a tool."""
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    def text_part(self, text: str) -> Json:
        """Return a text as a part of a message's content."""
        return {"type": "text", "text": text}

    def message(self, error: Json) -> str:
        """Check the form of an error body; return its message."""
        assert set(error) == {"error"}
        assert set(error["error"]) == {"message", "type", "param", "code"}
        return str(error["error"]["message"])

    @abstractmethod
    def whole(self, answer: Json) -> Said:
        """Read an answer in one piece."""

    @abstractmethod
    def streamed(self, lines: Iterable[str]) -> Said:
        """Join a stream."""

    def ask(self, client: httpx.Client, body: Mapping[str, Any]) -> Said:
        """Ask in one piece and as a stream; return what both give."""
        answer = client.post(self.path, json={**body, "stream": False})
        assert answer.status_code == 200, answer.text
        whole = self.whole(answer.json())
        with client.stream("POST", self.path, json={**body, "stream": True}) as response:
            assert response.status_code == 200
            assert self.streamed(response.iter_lines()) == whole
        return whole


def events(lines: Iterable[str]) -> list[Json]:
    """Return the data of server-sent events."""
    found = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(event) for event in found if event != "[DONE]"]


class Chat(Dialect):
    name = "openai"
    path = "/v1/chat/completions"

    def whole(self, answer: Json) -> Said:
        (choice,) = answer["choices"]
        calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
        read = [(call["name"], json.loads(call["arguments"])) for call in calls]
        return Said(choice["message"]["content"] or "", read, choice["finish_reason"])

    def streamed(self, lines: Iterable[str]) -> Said:
        choices = [choice for chunk in events(lines) for choice in chunk["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        calls: list[list[str]] = []
        for part in (part for choice in choices for part in choice["delta"].get("tool_calls", ())):
            if part["index"] == len(calls):
                calls.append([part["function"]["name"], ""])
            calls[part["index"]][1] += part["function"]["arguments"]
        (finish,) = (choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None)
        return Said(text, [(name, json.loads(arguments)) for name, arguments in calls], finish)


class Responses(Dialect):
    name = "responses"
    path = "/v1/responses"
    conversation = "input"
    limit = "max_output_tokens"
    stop = None
    defaults: ClassVar[Json] = {"store": False}
    natural = for_calls = "completed"
    too_long = "max_output_tokens"

    def tool(self, name: str, schema: Json) -> Json:
        return {"type": "function", "name": name, "parameters": schema}

    def text_part(self, text: str) -> Json:
        return {"type": "input_text", "text": text}

    def whole(self, answer: Json) -> Said:
        texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        cut = answer["incomplete_details"]
        read = [(call["name"], json.loads(call["arguments"])) for call in calls]
        return Said("".join(texts), read, cut["reason"] if cut else answer["status"])

    def streamed(self, lines: Iterable[str]) -> Said:
        *found, last = events(lines)
        said = self.whole(last["response"])
        assert said.text == "".join(e["delta"] for e in found if e["type"] == "response.output_text.delta")
        return said


class Messages(Dialect):
    name = "anthropic"
    path = "/v1/messages"
    stop = "stop_sequences"
    defaults: ClassVar[Json] = {"max_tokens": 4096}
    natural, too_long, for_calls, stopped = "end_turn", "max_tokens", "tool_use", "stop_sequence"
    forced: ClassVar[Any] = {"type": "any"}

    def tool(self, name: str, schema: Json) -> Json:
        return {"name": name, "input_schema": schema}

    def message(self, error: Json) -> str:
        assert error["type"] == "error"
        assert {"type", "message"} <= set(error["error"])
        return str(error["error"]["message"])

    def whole(self, answer: Json) -> Said:
        text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        calls = [(block["name"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"]
        return Said(text, calls, answer["stop_reason"])

    def streamed(self, lines: Iterable[str]) -> Said:
        text, calls, finishes = "", [], []
        for event in events(lines):
            delta = event.get("delta", {})
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls.append([event["content_block"]["name"], ""])
            elif event["type"] == "message_delta":
                finishes.append(delta["stop_reason"])
            elif delta.get("type") == "text_delta":
                text += delta["text"]
            elif delta.get("type") == "input_json_delta":
                calls[-1][1] += delta["partial_json"]
        (finish,) = finishes
        return Said(text, [(name, json.loads(arguments or "{}")) for name, arguments in calls], finish)


class Ollama(Dialect):
    name = "ollama"
    path = "/api/chat"
    limit = "num_predict"
    for_calls = "stop"
    forced = None

    def option(self, name: str, value: Any) -> Json:
        return {"options": {name: value}}

    def message(self, error: Json) -> str:
        assert set(error) == {"error"}
        assert isinstance(error["error"], str)
        return error["error"]

    def whole(self, answer: Json) -> Said:
        calls = [call["function"] for call in answer["message"].get("tool_calls") or ()]
        read = [(call["name"], call["arguments"]) for call in calls]
        return Said(answer["message"]["content"], read, answer["done_reason"])

    def streamed(self, lines: Iterable[str]) -> Said:
        *deltas, last = [json.loads(line) for line in lines if line]
        assert not any(delta["done"] for delta in deltas)
        joined = [self.whole({**delta, "done_reason": ""}) for delta in (*deltas, last)]
        return Said(
            "".join(said.text for said in joined), [call for said in joined for call in said.calls], last["done_reason"]
        )


DIALECTS = (Chat(), Responses(), Messages(), Ollama())
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.name for dialect in DIALECTS])
