from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_mlx_parsers.json_scan import JSONObjectScanner, JSONScanner, as_object, decode_string, repair_object

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def scan(text: str, width: int = 1) -> tuple[str, str]:
    """Return the JSON read and the text left; ``broken`` for what is not JSON."""
    scanner = JSONScanner()
    taken = ""
    for start in range(0, len(text), width):
        piece = text[start : start + width]
        end = scanner.feed(piece)
        taken += scanner.take()
        if scanner.done or scanner.broken:
            return ("broken" if scanner.broken else taken), text[start + end :]
    scanner.finish()
    return (taken + scanner.take() if scanner.done else "unfinished"), ""


@given(json_values, st.integers(1, 20), st.sampled_from([None, 1]), st.booleans())
def test_valid_json_comes_out_as_it_went_in(value, width, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert scan(text, width) == (text, "")


@given(json_values, st.integers(1, 20))
def test_the_end_of_a_value_is_found_in_a_stream(value, width):
    text = json.dumps(value)
    assert scan(f"{text}</tag>", width) == (text, "</tag>")


@given(st.text("{}[]\",:\\ \n01e-.truenalsfTN'ux", max_size=30), st.integers(1, 7))
def test_what_is_called_done_is_json_wherever_it_was_cut(text, width):
    whole = scan(text, len(text) or 1)
    assert scan(text, width) == whole
    if whole[0] not in ("broken", "unfinished"):
        json.loads(whole[0])


@pytest.mark.parametrize(
    "text", ["{'it's': 1}", "{a: 1}", "[1 2]", "[1}", "nul,", "01,", "{,}", "[,]", '{"a" 1}', "]", "NaN,"]
)
def test_what_is_not_json_is_broken(text):
    assert scan(text)[0] == scan(text, len(text))[0] == "broken"


def test_brokenness_shows_at_the_first_wrong_character():
    assert scan('{"a": [1, }, "b": 2}') == ("broken", '}, "b": 2}')


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a": [1', '"abc', '"abc\\', '"\\u12', "[tru"])
def test_what_is_cut_off_is_not_done(text):
    assert scan(text)[0] == scan(text, len(text) or 1)[0] == "unfinished"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"line1\nline2\tx\x00"', "line1\nline2\tx\x00"),
        (r'"it\'s"', "it's"),
        (r'"\d+\.\w"', r"\d+\.\w"),
        (r'"\u00zz"', r"\u00zz"),
        ('"a\\\nb"', "a\nb"),
        ("[1, 2, ]", [1, 2]),
        ('{"a": 1,\n}', {"a": 1}),
        ("[True, False, None]", [True, False, None]),
        ("""{'a': 'say "hi"', "b": 'it\\'s', 'c"': ''}""", {"a": 'say "hi"', "b": "it's", 'c"': ""}),
    ],
)
def test_common_faults_are_repaired(text, value):
    for width in (1, 2, 3, len(text)):
        taken, rest = scan(text, width)
        assert json.loads(taken) == value
        assert rest == ""


def test_every_character_is_looked_at_once():
    class Counted(str):
        """Counts the characters that are read, by index or by slice."""

        read = 0

        def __getitem__(self, key):
            part = super().__getitem__(key)
            Counted.read += len(part)
            return part

    text = json.dumps({"text": 'a "quoted" {brace} \\ ' * 200, "list": list(range(300))})
    scanner = JSONScanner()
    states = 0
    for char in text:
        piece = Counted(char)
        assert scanner.feed(piece) == 1
        states += 1
    assert scanner.done
    assert Counted.read <= 2 * states
    assert scanner.take() == text


def test_taking_leaves_nothing_behind():
    scanner = JSONScanner()
    scanner.feed('{"a": "b')
    assert scanner.take() == '{"a": "b'
    assert scanner.take() == ""
    scanner.feed('c"}')
    assert scanner.take() == 'c"}'


class Members(JSONObjectScanner):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, str] = {}
        self.complete: list[str] = []

    def value(self, key: str, json: str) -> None:
        self.seen[key] = self.seen.get(key, "") + json

    def member(self, key: str) -> None:
        self.complete.append(key)


@given(
    st.lists(st.sampled_from(["{", "}", "[", "]", '"a"', '"', ":", ",", " ", "\n ", "1", "tru", "\\"])).map("".join),
    st.integers(1, 7),
)
@example('{"a" x', 3)
def test_what_is_passed_on_is_the_same_wherever_it_was_cut_even_if_it_breaks(text, width):
    def members(width):
        members = Members()
        for start in range(0, len(text) + 4, width):
            members.feed(f'{{"":{text}'[start : start + width])
        return members.seen, members.complete, members.done, members.broken

    assert members(width) == members(len(text) + 4)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5), st.integers(1, 20), st.sampled_from([None, 2]))
def test_members_come_one_by_one(value, width, indent):
    text = json.dumps(value, indent=indent)
    members = Members()
    for start in range(0, len(text), width):
        members.feed(text[start : start + width])
    assert members.done
    assert {key: json.loads(member) for key, member in members.seen.items()} == value
    assert members.complete == list(value)


def test_an_object_ends_at_its_brace():
    members = Members()
    assert members.feed(' {"a": 1,} tail') == 10
    assert members.done
    assert members.seen == {"a": "1"}


@pytest.mark.parametrize("text", ["[1]", '"a"', '{"a"; 1}', '{"a": 1; "b": 2}', '{"a": x}', "{a: 1}"])
def test_what_is_not_an_object_is_broken(text):
    members = Members()
    members.feed(text)
    assert members.broken
    assert not members.done


def test_half_a_surrogate_pair_becomes_a_replacement_character():
    assert decode_string(r'"a\ud83db \ud83c\udf89"') == "a\ufffdb 🎉"
    with pytest.raises(ValueError, match="not a JSON string"):
        decode_string("5")


def test_an_object_in_a_string_is_repaired_or_refused():
    assert repair_object(' {"a": "x\ny",}\n') == '{"a": "x\\ny"}'
    for text in ("", "[1]", '{"a": 1} x', '{"a": '):
        assert repair_object(text) is None


@given(st.text("{}[]\",:\\ \n0e-tru'x", max_size=24), st.integers(1, 5), st.sampled_from([JSONScanner, Members]))
def test_every_feed_reads_its_text_to_the_end_unless_the_value_ends_or_breaks(text, width, make):
    scanner = make()
    for start in range(0, len(text), width):
        piece = text[start : start + width]
        end = scanner.feed(piece)
        assert end == len(piece) or scanner.done or scanner.broken
        assert not (scanner.done and scanner.broken)


@given(st.text("{}[]\",:\\ \n0e-tru'x", max_size=24), st.sampled_from([JSONScanner, Members]))
def test_every_step_consumes_something_or_goes_on_to_another_state(text, make):
    scanner = make()
    pos = 0
    stalled: set[object] = set()
    while pos < len(text) and not scanner.done and not scanner.broken:
        before = scanner._state
        now = before(scanner, text, pos)
        stalled = stalled | {before} if now == pos else set()
        assert now > pos or scanner.broken or scanner.done or scanner._state not in stalled
        pos = now


@given(st.dictionaries(st.text(max_size=4), json_values, min_size=1, max_size=3), st.integers(1, 9), st.integers(1, 6))
def test_closing_brackets_that_are_missing_are_added(value, width, missing):
    text = json.dumps(value)
    brackets = len(text) - len(text.rstrip("]}"))
    cut = text[: len(text) - min(missing, brackets)]
    for make in (JSONScanner, Members):
        scanner = make()
        for piece in (*(cut[start : start + width] for start in range(0, len(cut), width)), "<"):
            scanner.feed(piece)
        closes = not cut.rstrip().endswith(("{", "["))
        assert scanner.close() == scanner.done == closes
        if closes and isinstance(scanner, JSONScanner):
            assert json.loads(scanner.take()) == value
        elif closes:
            assert isinstance(scanner, Members)
            assert {key: json.loads(member) for key, member in scanner.seen.items()} == value


@pytest.mark.parametrize("text", ["", "{", '{"a"', '{"a":', '{"a": "b', '{"a": nul', '{"a": 1,', '{"a": [1, '])
def test_a_value_that_stops_elsewhere_than_after_a_member_is_not_closed(text):
    for make in (JSONScanner, Members):
        scanner = make()
        scanner.feed(text)
        assert not scanner.close()
        assert not scanner.done


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("null", "{}"),
        ("[]", "{}"),
        ("[ ]", "{}"),
        ('""', "{}"),
        ('" \\n"', "{}"),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("[1]", None),
        ("5", None),
        ('"5"', None),
    ],
)
def test_arguments_that_are_no_object_are_made_one_where_that_loses_nothing(text, arguments):
    assert as_object(text) == arguments
