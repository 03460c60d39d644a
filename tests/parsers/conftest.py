"""What the parser tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vllm_mlx_core.api import Chunk, Event, StreamParser
from vllm_mlx_core.testing.events import check_events

Run = Callable[[StreamParser[Any], str, int], list[Event]]


@pytest.fixture(scope="session")
def run() -> Run:
    """Feed a text in pieces of a width, check the rules, and return the events."""

    def run_parser(parser: StreamParser[Any], text: str, width: int) -> list[Event]:
        events: list[Event] = []
        for start in range(0, len(text), width):
            events += parser.feed(Chunk(text[start : start + width]))
        events += parser.finish()
        check_events(events)
        return events

    return run_parser


@pytest.fixture(params=[1, 2, 3, 5, 7, 13, 10_000])
def width(request: pytest.FixtureRequest) -> int:
    """How many characters a piece has: small ones, and the whole."""
    return int(request.param)
