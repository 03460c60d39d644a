import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx_core.api import ReasoningDelta, TextDelta
from vllm_mlx_core.cli.printing import AnswerPrinter


class TerminalStream(io.StringIO):
    def isatty(self):
        return True


def printed(out, *events):
    printer = AnswerPrinter(out)
    for event in events:
        printer.write(event)
    printer.end()
    return out.getvalue()


@given(st.lists(st.text()))
def test_elsewhere_the_answer_is_written_as_it_is_with_a_last_newline(pieces):
    answer = "".join(pieces)
    expected = answer if not answer or answer.endswith("\n") else f"{answer}\n"
    assert printed(io.StringIO(newline=""), *map(TextDelta, pieces)) == expected


def test_elsewhere_reasoning_is_left_out():
    assert printed(io.StringIO(), ReasoningDelta("hm"), TextDelta("yes")) == "yes\n"


def test_reasoning_ends_before_the_answer_begins():
    out = printed(TerminalStream(), ReasoningDelta("hm"), ReasoningDelta("m"), TextDelta("yes"))
    assert out == "\x1b[2mhm\x1b[0m\x1b[2mm\x1b[0m\nyes\n"


@given(st.lists(st.text()))
def test_a_terminal_gets_no_control_characters_from_the_model(pieces):
    out = printed(TerminalStream(), *map(TextDelta, pieces))
    assert not [char for char in out if (ord(char) < 0x20 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0]


def test_a_note_stands_on_its_own_line_of_a_terminal_only():
    terminal, file = TerminalStream(), io.StringIO()
    for out in (terminal, file):
        printer = AnswerPrinter(out)
        printer.write(TextDelta("half"))
        printer.note("stopped")
        printer.end()
    assert terminal.getvalue() == "half\n\x1b[2m[stopped]\n\x1b[0m"
    assert file.getvalue() == "half\n"


@pytest.mark.parametrize("text", ["a", "a\n"])
def test_every_piece_is_flushed(text):
    flushed: list[str] = []

    class Stream(io.StringIO):
        def flush(self):
            flushed.append(self.getvalue())

    printer = AnswerPrinter(Stream())
    printer.write(TextDelta(text))
    assert flushed == [text]
    printer.write(TextDelta("b"))
    assert flushed == [text, f"{text}b"]
