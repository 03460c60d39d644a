"""Stop strings over any cut of the text, against ``str.find``."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from vllm_mlx_core.engine.stopper import StopStrings

texts = st.text("ab\n", max_size=40)
stop_lists = st.lists(st.text("ab\n", min_size=1, max_size=6), min_size=1, max_size=4)


def expected(text, stops):
    """Return the text before the stop string that is complete first (the longest of several), and that stop string."""
    found = [(text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    _, start, stop = min(found)
    return text[:start], stop


def pieces_of(text, cuts):
    borders = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(borders)]


def run(stops, pieces):
    stopper, shown = StopStrings(stops), ""
    for piece in pieces:
        text, stop = stopper.push(piece)
        shown += text
        if stop is not None:
            return shown, stop
    return shown + stopper.finish(), None


@given(texts, stop_lists, st.lists(st.integers(0, 100)))
@example("aab", ["aaab", "ab"], [1, 2])
@example("abab\n", ["abab\nb", "bab"], [3])
def test_the_first_complete_stop_string_ends_the_text_wherever_it_is_cut(text, stops, cuts):
    assert run(stops, pieces_of(text, cuts)) == expected(text, stops)


@given(texts, stop_lists)
def test_nothing_is_held_back_but_the_beginning_of_a_stop_string(text, stops):
    before, stop = expected(text, stops)
    if stop is not None:
        text = before
    stopper = StopStrings(stops)
    shown = ""
    for end, character in enumerate(text, 1):
        certain, found = stopper.push(character)
        assert found is None
        shown += certain
        held = text[len(shown) : end]
        assert shown + held == text[:end]
        assert not held or any(stop.startswith(held) for stop in stops)
        longest = max(n for stop in stops for n in range(len(stop)) if text[:end].endswith(stop[:n]))
        assert len(held) == longest


def test_of_stop_strings_that_end_together_the_longest_is_taken():
    assert run(["b", "ab"], ["xa", "b"]) == ("x", "ab")


def test_an_empty_stop_string_matches_nothing():
    assert run(["", "z"], ["ab"]) == ("ab", None)


def test_characters_outside_the_basic_plane_are_matched():
    assert run(["👩‍👩"], ["hi 👩", "\u200d", "👩!"]) == ("hi ", "👩‍👩")


def test_a_long_stop_string_that_nearly_matches_everywhere_costs_one_pass():
    stopper = StopStrings(["a" * 20_000 + "b"])
    shown = "".join(stopper.push("a")[0] for _ in range(50_000))
    assert len(shown) == 30_000
    assert stopper.push("b") == ("", "a" * 20_000 + "b")
