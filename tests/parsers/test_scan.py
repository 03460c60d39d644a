from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_parsers.scan import Markers, skip_space


def split(markers: Markers, pieces: list[str]) -> list[str]:
    """Cut a stream at its markers, as a parser does."""
    parts = [""]
    held = ""
    for ended, piece in [*((False, piece) for piece in pieces), (True, "")]:
        text, pos = held + piece, 0
        while True:
            found = markers.find(text, pos, ended=ended)
            parts[-1] += text[pos : found.stop]
            if not found.marker:
                break
            parts += [found.marker, ""]
            pos = found.next
        held = text[found.stop :]
    return parts


def test_text_is_split_at_each_marker():
    assert split(Markers("<a>", "<b>"), ["x<a>y<b><a>z"]) == ["x", "<a>", "y", "<b>", "", "<a>", "z"]


def test_only_a_tail_that_may_become_a_marker_is_held_back():
    markers = Markers("<tool>")
    assert markers.find("a < b") == (5, "", 5)
    assert markers.find("a <to") == (2, "", 2)
    assert markers.find("a <tx") == (5, "", 5)
    assert markers.find("a <to", ended=True) == (5, "", 5)


def test_the_longest_of_the_markers_that_begin_at_one_place_wins():
    markers = Markers("[A", "[ARGS]")
    assert split(markers, ["x[ARGS]y"]) == ["x", "[ARGS]", "y"]
    assert split(markers, ["x[", "A", "R", "GS]y"]) == ["x", "[ARGS]", "y"]
    assert split(markers, ["x[A", "RG"]) == ["x", "[A", "RG"]


def test_an_incomplete_marker_that_begins_earlier_is_waited_for():
    markers = Markers("bc", "abcd")
    assert split(markers, ["abc", "d"]) == ["", "abcd", ""]
    assert split(markers, ["abc", "e"]) == ["a", "bc", "e"]


def test_the_marker_at_a_place_is_known_once_it_cannot_grow():
    markers = Markers("<a>", "<a>>")
    assert markers.at("x<a", 1) is None
    assert markers.at("x<a>", 1) is None
    assert markers.at("x<a>y", 1) == "<a>"
    assert markers.at("x<a>>", 1) == "<a>>"
    assert markers.at("xyz", 1) == ""


@pytest.mark.parametrize("markers", [(), ("",), ("<a>", "")])
def test_markers_must_not_be_empty(markers):
    with pytest.raises(ValueError, match="not be empty"):
        Markers(*markers)


def test_space_is_skipped_to_the_end_of_the_text():
    assert skip_space("a \t\r\n b", 1) == 6
    assert skip_space("a  ", 1) == 3
    assert skip_space("ab", 1) == 1


@given(
    st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text("ab<", max_size=5), max_size=12),
)
def test_where_the_stream_is_cut_does_not_matter(markers, pieces):
    assert split(Markers(*markers), pieces) == split(Markers(*markers), ["".join(pieces)])
