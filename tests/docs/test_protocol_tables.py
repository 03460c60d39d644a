"""The field tables of each protocol's page name every field of its request schemas, and no others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import BaseModel

from vllm_mlx_protocols.anthropic.schema import CountTokensRequest, MessagesRequest
from vllm_mlx_protocols.batches.schema import BatchRequest, UploadFields
from vllm_mlx_protocols.ollama.schema import ChatRequest, GenerateRequest, NamedRequest, PullRequest
from vllm_mlx_protocols.openai.refused import UNSUPPORTED
from vllm_mlx_protocols.openai.schema import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)


class Page(NamedTuple):
    """A page, the bodies of its protocol's requests, and the fields that are in no schema: refused ones, and files."""

    name: str
    bodies: Sequence[type[BaseModel]]
    others: Collection[str] = ()


PAGES = [
    Page("openai", [ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest], UNSUPPORTED),
    Page("batches", [UploadFields, BatchRequest], ["file"]),
    Page("anthropic", [MessagesRequest, CountTokensRequest]),
    Page("ollama", [ChatRequest, GenerateRequest, NamedRequest, PullRequest]),
]


def fields(body: type[BaseModel]) -> Iterator[str]:
    """Yield the names under which clients send a body's fields."""
    for name, field in body.model_fields.items():
        yield field.alias or name


def documented(text: str) -> Iterator[str]:
    """Yield the top-level fields in the first columns of the tables that are headed "field"."""
    rows = iter(text.splitlines())
    for row in rows:
        if not re.match(r"\| *field *\|", row):
            continue
        next(rows)  # the line below the head
        for line in rows:
            if not line.startswith("|"):
                break
            for name in re.findall(r"`([^`]+)`", line.split("|")[1]):
                yield re.split(r"[.\[]", name)[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_name_every_field_and_invent_none(root: Path, page: Page) -> None:
    text = (root / "docs" / "protocols" / f"{page.name}.md").read_text(encoding="utf-8")
    known = {name for body in page.bodies for name in fields(body)} | set(page.others)
    found = set(documented(text))
    assert sorted(known - found) == [], "fields without a line"
    assert sorted(found - known) == [], "lines without a field"


def test_only_field_tables_count_and_only_their_first_column() -> None:
    text = (
        "| route | |\n|---|---|\n| `GET /x` | |\n\n| field | |\n|---|---|\n| `a`, `b.c` | `d` |\n| `e[].f` | |\n\n`g`\n"
    )
    assert list(documented(text)) == ["a", "b", "e"]
