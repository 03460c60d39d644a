"""Rules that every registered tool parser keeps, tried with its own sample.

New parsers are tested from the start: names come from the entry points.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart

from .completions import Reply, called, read

PARSERS = {each.name: each.load() for each in entry_points(group="vllm_mlx.tool_parsers")}
CLASSES = {parser: name for name, parser in reversed(PARSERS.items())}
NAMES = sorted(CLASSES.values())
WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PARIS, ROME = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})
ALL = pytest.mark.parametrize("name", NAMES)

BARE = {CLASSES[PARSERS[name]] for name in ("json", "xlam", "pythonic", "minicpm5")}
"""Formats whose calls have no marker of their own."""
IN_MESSAGES = {CLASSES[PARSERS[name]] for name in ("harmony", "kimi_k3")}
"""Formats in which text stands between tokens too."""
STRUCTURE = {marker for name in IN_MESSAGES for marker in PARSERS[name].special_tokens}
STRUCTURE |= {marker for marker in PARSERS["cohere"].special_tokens if marker.endswith(("_RESPONSE|>", "_TEXT|>"))}
"""Tokens around text, which mean nothing else."""
ENDS = {token for name in NAMES for token in PARSERS[name].stop_tokens}
DROPPED = {"<|python_tag|>"}
"""What stands before code: never shown, wherever it is."""
QUOTES = {'<|"|>', "<escape>"}
"""What ends a text value."""


def sample(name, city="Paris"):
    """Return a call as the model writes it, without the token that ends its turn."""
    text = PARSERS[name].sample.replace("Paris", city)
    for token in PARSERS[name].stop_tokens:
        text = text.removesuffix(token)
    return text


def markers(*but):
    """Return parameters: all parsers with each of their markers, but those in sets."""
    exempt = set().union(*but)
    return pytest.mark.parametrize(
        ("name", "marker"), [(n, m) for n in NAMES for m in PARSERS[n].special_tokens if m not in exempt]
    )


@ALL
def test_arguments_stream_while_they_are_generated(name):
    city = "Llanfair" * 20
    parser = PARSERS[name](ParserContext(tools=(WEATHER,)))
    text = sample(name, city)
    inside = text.index(city) + len(city)
    events = [event for character in text[:inside] for event in parser.feed(Chunk(character))]
    assert [type(event) for event in events[:1]] == [ToolCallStart]
    sent = "".join(event.json for event in events if isinstance(event, ToolCallArguments))
    assert sent.count("Llanfair") >= 18
    assert not any(isinstance(event, ToolCallEnd) for event in events)


@ALL
def test_unicode_stays_literal(name):
    reply = read(sample(name, "北京 🎉 é"), name, tools=[WEATHER])
    assert reply == called(("get_weather", {"city": "北京 🎉 é"}))
    assert "北京 🎉 é" in reply.arguments[0]


@markers(ENDS, QUOTES)
def test_markers_inside_a_value_survive(name, marker):
    value = f"A {marker} and }} b"
    assert read(sample(name, value), name, tools=[WEATHER]) == called(("get_weather", {"city": value}))


@ALL
@pytest.mark.parametrize(
    "value", ["a < b > c", "{x} [y] (z)", "it's; a, b: c", "a  b", "}", "]", ")", "#", "null", "5"]
)
def test_brackets_and_punctuation_inside_a_value_survive(name, value):
    assert read(sample(name, value), name, tools=[WEATHER]) == called(("get_weather", {"city": value}))


@ALL
def test_parallel_calls_keep_their_order_and_have_ids_of_their_own(name):
    reply = read(f"{sample(name)}\n{sample(name, 'Rome')}", name, tools=[WEATHER])
    assert reply == called(PARIS, ROME)
    assert len(set(reply.ids)) == 2


@pytest.mark.parametrize("name", sorted({*NAMES} - {CLASSES[PARSERS["harmony"]]}))
def test_text_around_calls_is_kept(name):
    text = f"First.\n\n{sample(name)}\n\nSecond.\n{sample(name, 'Rome')}\nThird."
    reply = read(text, name, tools=[WEATHER])
    assert reply == called(PARIS, ROME, content="First.\n\nSecond.\nThird.")


@ALL
def test_forbidden_calls_leave_nothing_and_json_of_no_declared_tool_is_text(name):
    text = f"First.\n{sample(name)}"
    assert read(text, name, tools_enabled=False) == Reply(text if name in BARE else "First.")


@ALL
def test_one_call_is_enough_if_no_more_are_allowed(name):
    text = f"First.\n{sample(name)}\n{sample(name, 'Rome')}\nLast."
    assert read(text, name, tools=[WEATHER], parallel_tool_calls=False) == called(PARIS, content="First.")


@pytest.mark.parametrize("name", sorted({*NAMES} - IN_MESSAGES - {"json", "xlam"}))
def test_a_call_in_a_code_fence_is_text(name):
    text = f"Write it so:\n\n```\n{sample(name)}\n```\n\nThat is all."
    assert read(text, name, tools=[WEATHER]) == Reply(text)


ON_ONE_LINE = {name for name in NAMES if "\n" not in sample(name)}


@pytest.mark.parametrize("name", sorted(ON_ONE_LINE - BARE - IN_MESSAGES - {"step3"}))
def test_a_call_in_a_code_span_is_text(name):
    """A span does not go beyond its line; and Step-3's opening markers have a word between them, which unquotes."""
    text = f"A call like `{sample(name)}` is made."
    assert read(text, name, tools=[WEATHER]) == Reply(text)


@markers(ENDS, STRUCTURE)
def test_a_marker_in_a_code_span_is_text(name, marker):
    text = f"A call begins with `{marker}` there."
    assert read(text, name, tools=[WEATHER]) == Reply(text)


@markers(ENDS, STRUCTURE, DROPPED)
def test_a_marker_that_the_answer_mentions_is_text(name, marker):
    text = f"The {marker} tag begins a call, they say."
    assert read(text, name, tools=[WEATHER]) == Reply(text)


@ALL
def test_a_call_that_is_cut_off_is_never_complete(name):
    text = sample(name)
    end = text.index("Paris") + 3
    reply = read(text[:end], name, tools=[WEATHER], finish="length")
    assert (reply.calls, reply.finish) == ((), "length")
    for sent in reply.arguments:
        with pytest.raises(json.JSONDecodeError):
            json.loads(sent)


def test_every_registered_parser_has_a_conformance_suite():
    """Each is the ``parser`` of some suite in this folder."""
    tests = [file.read_text(encoding="utf-8") for file in Path(__file__).parent.rglob("test_*.py")]
    tried = {name for text in tests for name in re.findall(r"^    parser = (\w+)$", text, re.MULTILINE)}
    groups = ("vllm_mlx.tool_parsers", "vllm_mlx.reasoning_parsers")
    registered = {each.load().__name__ for group in groups for each in entry_points(group=group)}
    assert registered <= tried
