from __future__ import annotations

import re

import pytest

from vllm_mlx_parsers.code_quotes import CodeQuotes


def read(text: str, width: int = 10_000) -> CodeQuotes:
    code = CodeQuotes()
    for run in re.findall("`+|[^`]+", text):
        if run[0] == "`":
            code.ticks(len(run))
        for start in range(0, len(run), width):
            code.read(run[start : start + width])
    return code


@pytest.mark.parametrize("width", [1, 2, 10_000])
@pytest.mark.parametrize(
    ("text", "fence", "span"),
    [
        ("```py\nx\n", 3, 0),
        ("```py\nx\n```", 0, 0),
        ("```py\nx\n  ```\n", 0, 0),
        ("Here: ```py\nx\n", 3, 0),
        ("```one line``` and on", 0, 0),
        ("````\n```\n", 4, 0),
        ("````\n```\n````", 0, 0),
        ("```py\nprint('```')\n", 3, 0),
        ("```py\nprint('```')\n```\n", 0, 0),
        ("> ```\n> x\n> ```\n", 0, 0),
        ("a `b", 0, 1),
        ("a `b`", 0, 0),
        ("a ``b` c", 0, 2),
        ("a `b\nc", 0, 0),
    ],
)
def test_where_code_begins_and_ends(text, fence, span, width):
    code = read(text, width)
    assert (code.fence, code.span) == (fence, span)


def test_only_the_backtick_that_opens_a_span_says_so():
    code = CodeQuotes()
    assert code.ticks(1)
    assert not code.ticks(1)
    assert not code.ticks(3)
    assert not code.ticks(1)
