"""Gaps in texts, in the forms that models were trained on."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import Infill
from vllm_mlx_models.infill import infill_tokens

GAP = Infill(prefix="ab", suffix="c")


class Tokenizer:
    """One token per character, some markers, and perhaps a token that begins a text."""

    vocab_size = 2000

    def __init__(self, markers, beginning=()):
        self._ids = {marker: 1000 + number for number, marker in enumerate(markers)}
        self._beginning = list(beginning)

    def token_id(self, token):
        return self._ids.get(token)

    def special_token(self, token_id):
        return None

    def token_bytes(self, token_id):
        return None

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))

    def encode(self, text, *, add_special_tokens=False):
        return [*(self._beginning if add_special_tokens else ()), *map(ord, text)]


@pytest.mark.parametrize(
    "markers",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
        ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
        ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ],
)
def test_prefix_and_suffix_stand_between_the_markers(markers):
    assert infill_tokens(Tokenizer(markers, [1]), GAP, context_length=9) == [
        1,
        1000,
        ord("a"),
        ord("b"),
        1001,
        ord("c"),
        1002,
    ]


def test_codestral_reads_the_suffix_first():
    assert infill_tokens(Tokenizer(["[SUFFIX]", "[PREFIX]"]), GAP, context_length=9) == [
        1000,
        ord("c"),
        1001,
        ord("a"),
        ord("b"),
    ]


def test_a_vocabulary_without_all_markers_has_no_form():
    assert infill_tokens(Tokenizer(["<|fim_prefix|>", "<|fim_suffix|>"]), GAP, context_length=9) is None
