"""The reading of input files, which any client may fill with anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_protocols.batches.limits import MAX_ERRORS, MAX_LINE_DEPTH
from vllm_mlx_protocols.batches.lines import Line, LineReader, decode

from .batching import CHAT, TEXT, line

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "custom_id": st.sampled_from(["a", "b", "", "日本", "\ud800"]) | values,
        "method": st.sampled_from(["POST", "GET"]) | values,
        "url": st.sampled_from([CHAT, TEXT]) | values,
        "body": st.dictionaries(st.sampled_from(["model", "messages"]), values) | values,
    },
)
good = st.builds(lambda number: line(f"r{number}"), st.integers(0, 5))
lines = st.one_of(
    good.map(lambda value: json.dumps(value).encode()),
    fields.map(lambda value: json.dumps(value).encode()),
    values.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.just(b" "),
)
files = st.builds(
    lambda given, ends, bom: bom + b"".join(a + b for a, b in zip(given, ends, strict=False)),
    st.lists(lines, max_size=8),
    st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=8, max_size=8),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)


def read(content, sizes=()):
    """Return the lines and the faults of a file that is read in pieces of these sizes, and then at once."""
    reader, place = LineReader(CHAT), 0
    found: list[Line] = []
    for size in sizes:
        found += reader.feed(content[place : place + size])
        place += size
    found += [*reader.feed(content[place:]), *reader.finish()]
    return found, reader.faults


@given(files)
def test_every_line_is_good_or_blank_or_at_fault_and_a_good_one_is_where_it_is_said_to_be(content):
    found, faults = read(content)
    at_fault = [fault.line for fault in faults if fault.line is not None]
    blank = [number for number, each in enumerate(content.split(b"\n"), 1) if not each.strip()]
    if content.startswith(b"\xef\xbb\xbf") and not content.split(b"\n")[0][3:].strip():
        blank.append(1)
    assert sorted([each.number for each in found] + at_fault + sorted(set(blank))) == [
        *range(1, content.count(b"\n") + 2),
    ]
    for each in found:
        value = decode(content[each.start : each.start + each.size])
        assert (value["custom_id"], value["url"], value["method"]) == (each.custom_id, CHAT, "POST")
        assert isinstance(value["body"], dict)
        assert content[: each.start].count(b"\n") == each.number - 1
    assert len({each.custom_id for each in found}) == len(found)
    assert found or faults


@given(files, st.lists(st.integers(1, 40), max_size=20))
def test_it_does_not_matter_how_a_file_is_cut(content, sizes):
    assert read(content, sizes) == read(content)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_value_error(data):
    try:
        text = json.dumps(decode(data), ensure_ascii=False)
    except ValueError:
        return
    text.encode()  # no half characters


@pytest.mark.parametrize("depth", [MAX_LINE_DEPTH, MAX_LINE_DEPTH + 1, 100_000])
def test_a_line_may_be_as_deep_as_a_request(depth):
    data = b"[" * depth + b"1" + b"]" * depth
    if depth <= MAX_LINE_DEPTH:
        assert decode(data)
    else:
        with pytest.raises(ValueError, match=r"nested|recursion"):
            decode(data)


def test_no_more_is_read_than_is_needed_to_say_that_a_file_is_wrong():
    reader = LineReader(CHAT)
    assert list(reader.feed(b"{}\n" * 1000)) == []
    assert reader.is_over
    assert [fault.line for fault in reader.faults] == [*range(1, MAX_ERRORS + 1)]


def test_a_line_that_never_ends_is_not_kept():
    reader = LineReader(CHAT)
    for _ in range(100):
        assert list(reader.feed(b"x" * 100_000)) == []
        assert len(reader._rest) < 5_000_000
    (good,) = [*reader.feed(b"x\n" + json.dumps(line("a")).encode()), *reader.finish()]
    assert (good.number, good.start) == (2, 100 * 100_000 + 2)
    assert [(fault.code, fault.line) for fault in reader.faults] == [("line_too_long", 1)]
