"""Every field of the requests of Ollama's own client is declared: none is dropped in silence."""

from __future__ import annotations

import re

import ollama
import pytest
from ollama import _types as theirs

from vllm_mlx_protocols.ollama import schema
from vllm_mlx_protocols.ollama.options import Options


@pytest.mark.parametrize(
    ("known", "ours"),
    [
        (theirs.ChatRequest, schema.ChatRequest),
        (theirs.GenerateRequest, schema.GenerateRequest),
        (theirs.ShowRequest, schema.NamedRequest),
        (theirs.PullRequest, schema.PullRequest),
        (theirs.Message, schema.Message),
        (ollama.Options, Options),
    ],
)
def test_the_clients_fields_are_known(known, ours):
    assert set(known.model_fields) - set(ours.model_fields) == set()


def test_the_table_of_options_names_every_one_and_invents_none(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "protocols" / "ollama.md").read_text(encoding="utf-8")
    table = page.partition("| option |")[2].partition("\n\n")[0]
    found = {
        name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.removeprefix("|").split("|")[0])
    }
    assert found == set(Options.model_fields)
