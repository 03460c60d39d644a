import contextlib
import json
from argparse import ArgumentTypeError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.cli import values


@given(st.integers(3, 9))
def test_an_integer_in_range_is_itself(value):
    assert values.integer(3, 9)(str(value)) == value


@given(st.integers().filter(lambda value: not 3 <= value <= 9))
def test_an_integer_out_of_range_is_refused_with_the_range(value):
    with pytest.raises(ArgumentTypeError, match="from 3 to 9"):
        values.integer(3, 9)(str(value))


@given(st.floats(0, 1, exclude_min=True))
def test_a_number_in_an_open_range_is_itself(value):
    assert values.number(0, 1, above=True)(repr(value)) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "1.5", "", "one", "0x1"])
def test_a_number_that_is_not_finite_or_out_of_range_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="above 0 and at most 1"):
        values.number(0, 1, above=True)(text)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())))
def test_a_json_object_comes_back_as_it_was_written(value):
    assert values.json_object(json.dumps(value)) == value


CONVERTERS = {
    "integer": values.integer(0, 9),
    "number": values.number(0, 1),
    "name": values.name,
    "json_object": values.json_object,
    "text_file": values.text_file,
    "cache": values.cache,
    "url": values.url,
}


@pytest.mark.parametrize("convert", CONVERTERS.values(), ids=CONVERTERS)
@given(text=st.text(max_size=40))
def test_any_text_is_taken_or_refused_but_never_crashes(convert, text):
    with contextlib.suppress(ArgumentTypeError):
        convert(text)


def test_json_nested_too_deeply_is_refused():
    with pytest.raises(ArgumentTypeError, match="not valid JSON"):
        values.json_object("[" * 100_000)


@pytest.mark.parametrize("text", ["lru", "lru@dist", "paged:block=64", "disk:path=/a:b,limit=2", "x:empty="])
def test_a_cache_is_a_name_with_options(text):
    assert values.cache(text) == text


@pytest.mark.parametrize("text", ["", " ", ":", "lru:", "lru:a", "lru:=1", "lru:a=1,", "lru:a=1,b", "lru a=1"])
def test_a_cache_with_broken_options_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="NAME:key=value"):
        values.cache(text)


def test_a_file_is_read_as_text(tmp_path):
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages }} ü", encoding="utf-8")
    assert values.text_file(str(file)) == "{{ messages }} ü"


def test_a_missing_or_binary_file_is_refused_by_name(tmp_path):
    binary = tmp_path / "weights.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (binary, tmp_path / "missing", tmp_path):
        with pytest.raises(ArgumentTypeError, match=file.name):
            values.text_file(str(file))


@pytest.mark.parametrize("text", ["http://a:1", "https://a/v1", "http://[::1]:8000"])
def test_an_address_loses_only_its_trailing_slash(text):
    assert values.url(text) == values.url(text + "/") == text


@pytest.mark.parametrize("text", ["", "localhost:8000", "ftp://a", "http://", "http://a b", "http://a?x=1"])
def test_what_is_not_an_address_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="not an address"):
        values.url(text)
