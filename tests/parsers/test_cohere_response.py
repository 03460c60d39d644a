from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_parsers.cohere_response import ResponseText


def clean(text: str, width: int) -> str:
    response = ResponseText()
    pieces = [response.feed(text[start : start + width]) for start in range(0, len(text), width)]
    return "".join((*pieces, response.finish()))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<|START_RESPONSE|>foo <co>bar</co: 0:[1,2]><|END_RESPONSE|>", "foo bar"),
        ("<|START_TEXT|>\n\n Hi \n<|END_TEXT|>\n", "Hi"),
        ("<|END_RESPONSE|>", ""),
        ("a <co>b</co: 0:[1],1:[0, 2]> \n", "a b \n"),
        ("<co: 0>b</co: 0>", "b"),
        ("one <|END_RESPONSE|> two", "onetwo"),
        ("x<|START_RESP", "x<|START_RESP"),
        ("</co: see below>", "</co: see below>"),
        ("<code> <c <", "<code> <c <"),
        ("  plain \n", "  plain \n"),
    ],
)
def test_the_answer_is_what_is_left_without_the_markup(text, answer, width):
    assert clean(text, width) == answer


PIECES = (
    "<|START_RESPONSE|>",
    "<|END_TEXT|>",
    "<co>",
    "</co: 0:[1]>",
    "</co",
    ": ",
    "<",
    " ",
    "\n",
    "word",
    ">",
    "[1]",
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(1, 9))
def test_cuts_do_not_matter(text, width):
    assert clean(text, width) == clean(text, len(text) or 1)


def test_text_is_not_held_back():
    assert [ResponseText().feed(text) for text in ("Hi", "a < b", "<b>")] == ["Hi", "a < b", "<b>"]
