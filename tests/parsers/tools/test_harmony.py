from __future__ import annotations

import re

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool, ToolCallArguments, ToolCallEnd, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold, join
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.harmony import HarmonyToolParser

WEATHER = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
PYTHON = Tool("python")
PARIS = ("get_weather", {"city": "Paris"})
NEXT = "<|end|><|start|>assistant"
BODY = re.compile(r'<\|message\|>([^<`{"]*)')


def commentary(recipient="functions.get_weather", body='{"city":"Paris"}', end="<|call|>"):
    return f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>{body}{end}"


def message(channel, body):
    return f"<|channel|>{channel}<|message|>{body}"


def squeezed(text):
    return "".join(text.split())


def parser(*tools):
    return HarmonyToolParser(ParserContext(tools=tools or (WEATHER,)))


class TestHarmonyConforms(ToolParserSuite):
    parser = HarmonyToolParser
    tools = (WEATHER,)
    extra_markers = ("to=functions.get_weather",)
    samples = (
        ToolSample(HarmonyToolParser.sample, calls=[PARIS]),
        ToolSample(f"{message('analysis', 'Hm.')}{NEXT}{commentary()}", "Hm.", [PARIS]),
        ToolSample(
            '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>',
            calls=[PARIS],
        ),
        ToolSample(' to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}', calls=[PARIS]),
        ToolSample(
            f"{message('commentary', 'I look.')}{NEXT}{commentary('functions.f', '{}')}{NEXT}{message('final', 'Ok')}",
            "I look.\n\nOk",
            [("f", {})],
        ),
        ToolSample(commentary("functions.a.b-c", '{"s": "}\\"é 北京"}', ""), calls=[("a.b-c", {"s": '}"é 北京'})]),
        ToolSample(commentary("f", ""), calls=[("f", {})]),
        ToolSample("<|channel|>commentary to=functions.f<|call|>", calls=[("f", {})]),
        ToolSample('<|channel|>commentary to=functions.f {"a": 1}<|call|>', calls=[("f", {"a": 1})]),
        ToolSample(
            commentary("functions.f", '{"s": "<|end|><|call|>"}'), calls=[("f", {"s": "<|end|><|call|>"})], literal=True
        ),
        ToolSample(commentary("functions.f", '{"a": 1}}'), calls=[("f", {"a": 1})]),
        ToolSample(commentary("functions.f", '{"a": 1 2}'), '{"a": 1 2}'),
        ToolSample(f"{message('final', 'A')}{NEXT}{message('final', 'B')}<|return|>", "A\n\nB"),
        ToolSample(
            message("final", "Say `<|end|>`.\n```\n<|start|>\n```"), "Say `<|end|>`.\n```\n<|start|>\n```", literal=True
        ),
        ToolSample("No header.<|end|>", "No header."),
        ToolSample(
            "<|channel|>analysis to=python code<|message|>x = '1'<|call|>",
            calls=[("python", {"code": "x = '1'"})],
            tools=(PYTHON,),
        ),
        ToolSample("<|channel|>analysis to=python code<|message|>x = '1'<|call|>", "x = '1'"),
    )

    def _check_nothing_lost(self, text, events):
        """Headers are dropped, whatever is in them; bodies are not, but for what a string that never ends swallows."""
        emitted = self.emitted_text(events)
        if emitted is not None and '<|message|>"' not in text:
            for body in BODY.findall(text):
                assert squeezed(body) in squeezed(emitted)


@pytest.mark.parametrize(
    "text",
    [
        commentary(),
        commentary().replace(" <|constrain|>json", ""),
        commentary().replace(" <|constrain|>json", " json"),
        commentary().replace("commentary", "commentary––json odd_word"),
        commentary().replace("commentary", "analysis"),
        commentary().removesuffix("<|call|>"),
        commentary().replace("<|call|>", "<|end|>"),
        commentary("get_weather"),
        f"<|start|>assistant{commentary()}",
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>',
        ' to=functions.get_weather<|channel|>commentary<|message|>{"city":"Paris"}',
        ' to=functions.get_weather<|message|>{"city":"Paris"}',
    ],
)
def test_a_message_to_a_function_is_a_call_wherever_the_header_says_so(run, width, text):
    folded = fold(run(parser(), text, width))
    assert folded.calls == [PARIS]
    assert folded.content == ""


def test_a_name_with_dashes_and_dots_is_taken_whole(run, width):
    folded = fold(run(parser(), commentary("functions.web-browsing.v2", "{}"), width))
    assert folded.calls == [("web-browsing.v2", {})]


def test_without_a_reasoning_parser_the_analysis_is_content_and_no_header_is_shown(run, width):
    text = f"{message('analysis', 'Need weather.')}{NEXT}{message('final', 'Sunny.')}<|return|>"
    assert fold(run(parser(), text, width)).content == "Need weather.\n\nSunny."


def test_a_preamble_is_content(run, width):
    folded = fold(run(parser(), f"{message('commentary', 'I look.')}{NEXT}{commentary()}", width))
    assert folded.content == "I look."
    assert folded.calls == [PARIS]


@pytest.mark.parametrize("tool", ["python", "browser.search"])
def test_a_builtin_tool_is_called_only_if_the_client_declared_it(run, width, tool):
    text = f'<|channel|>analysis to={tool}<|message|>{{"q": 1}}<|call|>'
    assert fold(run(parser(Tool(tool)), text, width)).calls == [(tool, {"q": 1})]
    undeclared = fold(run(parser(), text, width))
    assert undeclared.calls == []
    assert undeclared.content == '{"q": 1}'


def test_an_empty_body_is_an_empty_object_if_the_message_ended(run, width):
    assert fold(run(parser(), commentary("functions.ping", ""), width)).calls == [("ping", {})]
    assert fold(run(parser(), commentary("functions.ping", "", ""), width)).calls == []


@pytest.mark.parametrize("body", ['{"a": 1 2}', "not JSON", '{"a": "never closed}', "[1]"])
def test_the_body_of_a_broken_call_is_content_without_its_header(run, width, body):
    folded = fold(run(parser(), f"Hi{NEXT}{commentary('functions.f', body)}", width))
    assert folded.content == f"Hi\n\n{body}"
    assert folded.calls == []


@pytest.mark.parametrize("text", ["to=x is a word", " to=x y z", "assistant", "to", " <"])
def test_text_that_only_looks_like_the_rest_of_a_header_is_text(run, width, text):
    assert fold(run(parser(), text, width)).content == text


@pytest.mark.parametrize(
    "text", ["<|channel|>final", "<|start|>assis", " to=functions.get", "A<|end|>assis", "A<|end|><|sta"]
)
def test_a_header_that_is_cut_off_leaves_nothing(run, width, text):
    assert fold(run(parser(), text, width)).content == text.partition("<")[0].partition(" ")[0]


def test_a_header_without_its_last_marker_does_not_swallow_the_text(run, width):
    text = "<|channel|>final The answer " + "is forty-two, " * 30
    assert fold(run(parser(), text, width)).content == text.removeprefix("<|channel|>final ")
    assert fold(run(parser(), "<|channel|>final It is 42.", width)).content == "It is 42."


def test_a_missing_start_token_is_made_good(run, width):
    text = f"{message('analysis', 'Hm.')}<|end|>assistant{commentary()}"
    assert fold(run(parser(), text, width)).calls == [PARIS]
    assert fold(run(parser(), f"{message('analysis', 'Hm.')}{commentary()}", width)).calls == [PARIS]


def test_name_and_arguments_stream_while_they_are_generated():
    stream = parser()
    assert list(stream.feed(Chunk(f"Hi{NEXT}<|channel|>commentary to=functions.f"))) == [TextDelta("Hi")]
    start, arguments = stream.feed(Chunk('<|message|>{"te'))
    assert isinstance(start, ToolCallStart)
    assert arguments == ToolCallArguments(0, '{"te')
    assert list(stream.feed(Chunk('xt": "a'))) == [ToolCallArguments(0, 'xt": "a')]
    assert join(stream.feed(Chunk('"}'))) == [ToolCallArguments(0, '"}'), ToolCallEnd(0)]


def test_the_template_writes_the_form_that_is_read(real_templates):
    template = real_templates["openai-gpt-oss-120b"]
    assert '"<|start|>assistant to="' in template
    assert '"functions." + tool_call.name + "<|channel|>commentary "' in template
    assert template.rstrip().endswith("<|start|>assistant\n{%- endif -%}")
