from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import TextDelta, ToolCallArguments, ToolCallEnd
from vllm_mlx_core.engine.half_characters import HalfCharacters

PIECES = st.lists(
    st.sampled_from(
        ["a", "\\\\", "\\n", '\\"', "\\ud83d", "\\ude00", "\\uD800", "\\u00e9", "\\udfff", "ud800", "é", "👋"]
    ),
    max_size=8,
)


def read(pieces):
    halves = HalfCharacters()
    events = [event for piece in pieces for event in halves.feed(ToolCallArguments(0, piece))]
    events += halves.feed(ToolCallEnd(0))
    assert isinstance(events[-1], ToolCallEnd)
    return "".join(event.json for event in events if isinstance(event, ToolCallArguments))


def expected(text):
    """Python joins the halves of a pair and keeps a lone one, which UTF-16 does not let pass."""
    return json.loads(text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_only_halves_are_replaced_wherever_the_text_is_cut(pieces, cuts):
    text = '"' + "".join(pieces) + '"'
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    said = read([text[start:end] for start, end in itertools.pairwise(edges)])
    assert not any(0xD800 <= ord(char) <= 0xDFFF for char in json.loads(said))
    assert json.loads(said).replace("\ufffd", "") == expected(text).replace("\ufffd", "")
    assert said == read(list(text)) == read([text])


@pytest.mark.parametrize(
    "text", ["", "{}", '{"a": "b"}', '{"a": "\\\\ud800"}', '{"a": "\\ud83d\\ude00"}', "\\", "\\u12", "\\uzzzz"]
)
def test_everything_else_stays_as_it_is(text):
    assert read([text]) == read(list(text)) == text


def test_what_holds_no_escape_goes_on_at_once():
    halves = HalfCharacters()
    event = ToolCallArguments(0, '{"a": 1')
    assert list(halves.feed(event)) == [event]
    assert list(halves.feed(TextDelta("x"))) == [TextDelta("x")]
    assert list(halves.feed(ToolCallArguments(0, "\\ud83d"))) == []
    assert list(halves.feed(ToolCallArguments(0, "\\ude00"))) == [ToolCallArguments(0, "\\ud83d\\ude00")]
