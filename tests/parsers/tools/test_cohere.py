from __future__ import annotations

import re

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.cohere import CohereToolParser

A = '{"tool_call_id": "0", "tool_name": "foo", "parameters": {"q": "x"}}'
B = '{"tool_call_id": "1", "tool_name": "bar", "parameters": {"x": 42}}'
BOTH = [("foo", {"q": "x"}), ("bar", {"x": 42})]


def action(*calls: str) -> str:
    return f"<|START_ACTION|>\n[{', '.join(calls)}]\n<|END_ACTION|>"


class TestCohereConforms(ToolParserSuite):
    parser = CohereToolParser
    extra_markers = ("<co>", "</co: 0:[1,2]>", "</co: 0:[1],1:[0]>", "<co: 0>", "</co>")
    marker_pattern = r"</?co:[\d ,:\[\]]*>"
    samples = (
        ToolSample(CohereToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(action(A, B), calls=BOTH),
        ToolSample(f"Looking.\n{action(A)}\n", "Looking.", BOTH[:1]),
        ToolSample(f"One {action(A)} two{action(B)} three", "One two three", BOTH),
        ToolSample('<|START_ACTION|>[{"tool_name": "f"}]<|END_ACTION|>', calls=[("f", {})]),
        ToolSample(
            action('{"tool_name": "f", "parameters": {"a": [{"b": {}}]}, "tool_call_id": "0"}'),
            calls=[("f", {"a": [{"b": {}}]})],
        ),
        ToolSample(
            action(r'{"tool_name": "f", "parameters": {"s": "<co>]}\"é\n</co: 0:[1,2]>"}}'),
            calls=[("f", {"s": '<co>]}"é\n</co: 0:[1,2]>'})],
        ),
        ToolSample(f"<|START_ACTION|>[{A}", calls=BOTH[:1]),
        ToolSample("<|START_RESPONSE|>foo <co>bar</co: 0:[1,2]><|END_RESPONSE|>", "foo bar"),
        ToolSample("<|START_RESPONSE|>\n<co>a</co: 0:[1],1:[0]>, <co: 0>b</co>.\n\nc\n<|END_RESPONSE|>", "a, b.\n\nc"),
        ToolSample("<|START_TEXT|>It is sunny. <|END_TEXT|>", "It is sunny."),
        ToolSample(f"<|START_TEXT|>Looking.<|END_TEXT|>{action(A)}", "Looking.", BOTH[:1]),
        ToolSample("a < b, <code>, </co-op> and <co", "a < b, <code>, </co-op> and <co"),
        ToolSample(action("5"), action("5"), literal=True),
    )


def test_a_list_of_actions_gives_calls_with_ids_of_their_own(run, width):
    events = run(CohereToolParser(ParserContext()), action(A, B), width)
    assert fold(events).calls == BOTH
    ids = [event.id for event in events if isinstance(event, ToolCallStart)]
    assert all(re.fullmatch("call_[0-9a-f]{24}", call_id) for call_id in ids)
    assert len(set(ids)) == 2


def test_citation_tags_and_the_markers_around_the_answer_are_not_content(run, width):
    text = "<|START_RESPONSE|>foo <co>bar</co: 0:[1,2]><|END_RESPONSE|>"
    assert fold(run(CohereToolParser(ParserContext()), text, width)).content == "foo bar"


def test_a_long_text_in_parentheses_like_a_citation_is_not_held_for_ever():
    parser = CohereToolParser(ParserContext())
    list(parser.feed(Chunk("</co: ")))
    events = [event for _ in range(200) for event in parser.feed(Chunk("0:[1], "))]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).startswith("</co: 0:[1], ")
