from argparse import ArgumentTypeError

import pytest

from vllm_mlx_core.api import ApiKey, UsageError
from vllm_mlx_core.cli import keys


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("secret", "secret", None),
        ("alice:secret", "secret", "alice"),
        ("alice:se:cret", "se:cret", "alice"),
        ("a b:c", "a b:c", None),
        (":c", ":c", None),
    ],
)
def test_what_stands_before_the_first_colon_is_a_name_if_it_can_be_one(text, key, name):
    assert keys.api_key(text) == ApiKey(key, name)


@pytest.mark.parametrize("text", ["", " x", "x ", "a:", "a: x", "k\xe9y", "a\tb", "key-1:hush", "KEY-07:hush"])
def test_what_no_client_could_send_and_names_of_the_nameless_are_refused_without_a_key_in_the_message(text):
    with pytest.raises(ArgumentTypeError) as info:
        keys.api_key(text)
    assert "hush" not in str(info.value)


def test_a_file_holds_one_key_a_line_and_comments(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# people\nalice:one\n\n  two  \n#bob:three\n", encoding="utf-8")
    assert keys.read(file) == [ApiKey("one", "alice"), ApiKey("two")]


def test_a_bad_line_of_a_file_is_told_by_its_number_and_not_by_what_it_holds(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\nkey-1:hush\n", encoding="utf-8")
    with pytest.raises(UsageError, match="line 2") as info:
        keys.read(file)
    assert "hush" not in str(info.value)


def test_a_file_that_is_no_text_is_one_line(tmp_path):
    file = tmp_path / "keys"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        keys.read(file)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_everyone_can_read_is_warned_about(tmp_path, caplog, mode, warned):
    file = tmp_path / "keys"
    file.write_text("hush\n", encoding="utf-8")
    file.chmod(mode)
    keys.read(file)
    assert ("can read the API keys" in caplog.text) is warned
    assert "hush" not in caplog.text


def test_a_key_given_twice_counts_once_and_may_have_one_name_only():
    alice, nobody = ApiKey("k", "alice"), ApiKey("k")
    assert keys.distinct([alice, ApiKey("other", "alice"), alice]) == (alice, ApiKey("other", "alice"))
    with pytest.raises(UsageError, match=r"alice and no name"):
        keys.distinct([alice, nobody])
