from __future__ import annotations

import pytest

from vllm_mlx_core.api import Chunk, ParserContext, TextDelta, Tool, ToolCallArguments, ToolCallStart
from vllm_mlx_core.testing import ToolParserSuite
from vllm_mlx_core.testing.events import fold
from vllm_mlx_core.testing.parsers import ToolSample
from vllm_mlx_parsers.tools.functionary import FunctionaryToolParser

PRICE, PYTHON, WEATHER = Tool("get_price"), Tool("python"), Tool("get_weather")
EOM, EOT = "<|eom_id|>", "<|eot_id|>"
SONG, TANG = ("get_price", {"car": "Song"}), ("get_price", {"car": "Tang"})
DOCTEST = "Type:\n>>> all\n>>>x = 1\n>>> get_price\n{1: 2}\n"


def tag(name, arguments):
    return f"<function={name}>{arguments}</function>"


def parser(*tools):
    return FunctionaryToolParser(ParserContext(tools=tools or (PRICE,)))


class TestFunctionaryConforms(ToolParserSuite):
    parser = FunctionaryToolParser
    tools = (PRICE, WEATHER)
    extra_markers = ("<function=", "</function>", ">>>", "all\n", "python\n", "get_price\n", "get_weather\n")
    plain_texts = (*ToolParserSuite.plain_texts, DOCTEST, "all of it", "get_price is a function", "a >> b")
    samples = (
        ToolSample(FunctionaryToolParser.sample, calls=[("get_weather", {"city": "Paris"})]),
        ToolSample(f'>>>all\nI see.>>>get_price\n{{"car": "Song"}}{EOT}', "I see.", [SONG]),
        ToolSample(f'all\nI see.>>>get_price\n{{"car": "Song"}}{EOT}', "I see.", [SONG]),
        ToolSample(f'get_price\n{{"car": "Song"}}>>>get_price\n{{"car": "Tang"}}{EOT}', calls=[SONG, TANG]),
        ToolSample(f">>>get_price\n{EOT}", calls=[("get_price", {})]),
        ToolSample(
            '>>>other.f-2\n{"a": {"b": ">>>all\\n é 北京 \\"}"}}',
            calls=[("other.f-2", {"a": {"b": '>>>all\n é 北京 "}'}})],
            literal=True,
        ),
        ToolSample(
            "A\n" + tag("get_price", '{"car": "Song"}') + tag("get_price", '{"car": "Tang"}') + EOM, "A", [SONG, TANG]
        ),
        ToolSample(tag("f", ""), calls=[("f", {})]),
        ToolSample(tag("f", '{"s": "</function>"}'), calls=[("f", {"s": "</function>"})], literal=True),
        ToolSample('<function=f>{"a": 1}', calls=[("f", {"a": 1})]),
        ToolSample(f"One\n{tag('f', '{}')}\ntwo{EOT}", "One\ntwo", [("f", {})]),
        ToolSample(f"<|python_tag|>print(1){EOM}", "print(1)"),
        ToolSample(f">>>python\nprint('>>>')\n>>>all\nDone.{EOT}", "print('>>>')\nDone.", literal=True),
        ToolSample(
            f'I run.<|python_tag|>print("é\\n")\n# >>>x{EOM}',
            "I run.",
            [("python", {"code": 'print("é\\n")\n# >>>x'})],
            tools=(PYTHON,),
        ),
        ToolSample(f">>>python\nx = 1>>>all\nDone.{EOT}", "Done.", [("python", {"code": "x = 1"})], tools=(PYTHON,)),
        ToolSample(f'<|python_tag|>{{"code": "x"}}{EOM}', calls=[("python", {"code": "x"})], tools=(PYTHON,)),
        ToolSample(f"Just `text`{EOT}", "Just `text`"),
        ToolSample("Use `<function=f>`.\n```\n>>>all\n```", "Use `<function=f>`.\n```\n>>>all\n```", literal=True),
        ToolSample("Use <function=name> here.", "Use <function=name> here.", literal=True),
        ToolSample(tag("f", '{"a": 1 2}'), tag("f", '{"a": 1 2}'), literal=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        "I will compare." + tag("get_price", '{"car": "Song"}') + tag("get_price", '{"car": "Tang"}') + EOM,
        f'>>>all\nI will compare.>>>get_price\n{{"car": "Song"}}>>>get_price\n{{"car": "Tang"}}{EOT}',
        f'all\nI will compare.>>>get_price\n{{"car": "Song"}}>>>get_price\n{{"car": "Tang"}}{EOT}',
    ],
)
def test_parallel_calls_after_text_are_two_calls_and_the_text_is_content(run, width, text):
    folded = fold(run(parser(), text, width))
    assert folded.content == "I will compare."
    assert folded.calls == [SONG, TANG]


@pytest.mark.parametrize("text", ["Nothing to call.", "Nothing to call.<|eot_id|>", "all\nNothing to call.<|eot_id|>"])
def test_plain_text_is_no_call(run, width, text):
    folded = fold(run(parser(), text, width))
    assert folded.content == "Nothing to call."
    assert folded.calls == folded.unfinished == []


def test_a_python_prompt_in_the_text_is_no_recipient(run, width):
    folded = fold(run(parser(), DOCTEST, width))
    assert folded.content == DOCTEST
    assert folded.calls == folded.unfinished == []


@pytest.mark.parametrize("text", ["other\n{}", "get_price\nis a function", "allow\nit", "get_price"])
def test_only_all_or_a_declared_name_with_its_arguments_may_begin_a_completion_without_marker(run, width, text):
    assert fold(run(parser(), text, width)).content == text


@pytest.mark.parametrize("opening", [">>>python\n", "python\n", "<|python_tag|>"])
def test_code_is_a_call_only_if_the_client_declared_python(run, width, opening):
    text = f"{opening}print(1)<|eom_id|>"
    assert fold(run(parser(PYTHON), text, width)).calls == [("python", {"code": "print(1)"})]
    undeclared = fold(run(parser(), text, width))
    assert undeclared.content.removeprefix("python\n") == "print(1)"
    assert undeclared.calls == []


def test_code_that_is_cut_off_is_not_a_complete_call(run, width):
    folded = fold(run(parser(PYTHON), ">>>python\nprint(1", width))
    assert folded.calls == []
    assert folded.unfinished == [("python", '{"code":"print(1')]
    assert folded.content == ""


def test_arguments_and_code_stream_while_they_are_generated():
    stream = parser(PYTHON)
    assert list(stream.feed(Chunk("all\nHi"))) == [TextDelta("Hi")]
    start, *rest = stream.feed(Chunk(">>>python\nx"))
    assert isinstance(start, ToolCallStart)
    assert rest == [ToolCallArguments(0, '{"code":"'), ToolCallArguments(0, "x")]
    assert list(stream.feed(Chunk(' = "1"\n'))) == [ToolCallArguments(0, ' = \\"1\\"\\n')]


def test_the_templates_write_the_forms_that_are_read(real_templates):
    old, new = real_templates["meetkai-functionary-medium-v3.1"], real_templates["meetkai-functionary-medium-v3.2"]
    assert "'<function=' +" in old
    assert "'<|python_tag|>' +" in old
    assert "'>>>all\\n' +" in new
    assert new.rstrip().endswith("<|end_header_id|>\\n\\n>>>' }}{% endif %}")
