"""What models write in the style of their templates is read back as the calls they meant: all formats but JSON's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chunk, ParserContext, Tool, ToolParser
from vllm_mlx_core.testing.events import Folded, check_events, fold
from vllm_mlx_parsers.tools.auto import AutoToolParser
from vllm_mlx_parsers.tools.deepseek_v32 import DeepSeekV32ToolParser
from vllm_mlx_parsers.tools.functiongemma import FunctionGemmaToolParser
from vllm_mlx_parsers.tools.gemma4 import Gemma4ToolParser
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.kimi_k3 import KimiK3ToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.poolside_v1 import PoolsideV1ToolParser
from vllm_mlx_parsers.tools.pythonic import PythonicToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser
from vllm_mlx_parsers.tools.step3 import Step3ToolParser

Arguments = Mapping[str, Any]
Calls = Sequence[tuple[str, Arguments]]


def plain(value: Any) -> str:
    """Return a value as templates write it between tags."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def qwen_call(name: str, arguments: Arguments) -> str:
    values = "".join(f"<parameter={key}>\n{plain(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<function={name}>\n{values}</function>"


def qwen(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{qwen_call(*call)}\n</tool_call>" for call in calls)


def seed(calls: Calls) -> str:
    return "\n".join(f"<seed:tool_call>\n{qwen_call(*call)}\n</seed:tool_call>" for call in calls)


def glm(calls: Calls, newline: str = "\n") -> str:
    def call(name: str, arguments: Arguments) -> str:
        pairs = (
            f"<arg_key>{key}</arg_key>{newline}<arg_value>{plain(value)}</arg_value>{newline}"
            for key, value in arguments.items()
        )
        return f"<tool_call>{name}{newline}{''.join(pairs)}</tool_call>"

    return newline.join(call(*each) for each in calls)


def poolside(calls: Calls) -> str:
    return glm(calls, "")


def minimax(calls: Calls) -> str:
    def call(name: str, arguments: Arguments) -> str:
        values = "".join(f'<parameter name="{key}">{plain(value)}</parameter>\n' for key, value in arguments.items())
        return f'<invoke name="{name}">\n{values}</invoke>\n'

    return f"<minimax:tool_call>\n{''.join(call(*each) for each in calls)}</minimax:tool_call>"


def dsml(calls: Calls) -> str:
    def call(name: str, arguments: Arguments) -> str:
        values = "".join(
            f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
            f"{plain(value)}</｜DSML｜parameter>\n"
            for key, value in arguments.items()
        )
        return f'<｜DSML｜invoke name="{name}">\n{values}</｜DSML｜invoke>\n'

    return f"<｜DSML｜tool_calls>\n{''.join(call(*each) for each in calls)}</｜DSML｜tool_calls>"


def step3(calls: Calls) -> str:
    def call(name: str, arguments: Arguments) -> str:
        values = "".join(
            f'<steptml:parameter name="{key}">{plain(value)}</steptml:parameter>' for key, value in arguments.items()
        )
        return (
            f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">{values}</steptml:invoke>'
            "<｜tool_call_end｜>"
        )

    return f"<｜tool_calls_begin｜>{''.join(call(*each) for each in calls)}<｜tool_calls_end｜>"


def kimi(calls: Calls) -> str:
    def call(name: str, arguments: Arguments) -> str:
        values = "".join(
            f'<|open|>argument key="{key}" type="{"string" if isinstance(value, str) else "object"}"<|sep|>'
            f"{plain(value)}<|close|>argument<|sep|>"
            for key, value in arguments.items()
        )
        return f'<|open|>call tool="{name}" index="1"<|sep|>{values}<|close|>call<|sep|>'

    return f"<|open|>tools<|sep|>{''.join(call(*each) for each in calls)}<|close|>tools<|sep|>"


def braces(start: str, end: str, quote: str) -> Callable[[Calls], str]:
    def value(each: Any) -> str:
        match each:
            case str():
                return f"{quote}{each}{quote}"
            case list():
                return f"[{','.join(map(value, each))}]"
            case dict():
                return f"{{{members(each)}}}"
            case _:
                return json.dumps(each)

    def members(each: Arguments) -> str:
        return ",".join(f"{key}:{value(item)}" for key, item in each.items())

    return lambda calls: "".join(f"{start}call:{name}{{{members(arguments)}}}{end}" for name, arguments in calls)


def pythonic(calls: Calls) -> str:
    def call(name: str, arguments: Arguments) -> str:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return f"<|tool_call_start|>[{', '.join(call(*each) for each in calls)}]<|tool_call_end|>"


class Format(NamedTuple):
    parser: type[ToolParser]
    write: Callable[[Calls], str]
    unsayable: Sequence[str] = ()
    """What its text values cannot hold: the tokens that end them, whatever follows."""


FORMATS = (
    Format(Qwen3CoderToolParser, qwen),
    Format(SeedOSSToolParser, seed),
    Format(GLMToolParser, glm),
    Format(PoolsideV1ToolParser, poolside),
    Format(MiniMaxM2ToolParser, minimax),
    Format(DeepSeekV32ToolParser, dsml),
    Format(Step3ToolParser, step3),
    Format(KimiK3ToolParser, kimi, ["<|close|>"]),
    Format(Gemma4ToolParser, braces("<|tool_call>", "<tool_call|>", '<|"|>'), ['<|"|>']),
    Format(FunctionGemmaToolParser, braces("<start_function_call>", "<end_function_call>", "<escape>"), ["<escape>"]),
    Format(PythonicToolParser, pythonic),
)
EACH_FORMAT = pytest.mark.parametrize("form", FORMATS, ids=[form.parser.__name__ for form in FORMATS])
TAGGED = FORMATS[:7]
EACH_TAGGED_FORMAT = pytest.mark.parametrize("form", TAGGED, ids=[form.parser.__name__ for form in TAGGED])

CALLS_OF_OTHERS = [form.write([("get_weather", {"city": "Paris"})]) for form in FORMATS]
PIECES = (
    *CALLS_OF_OTHERS,
    "<html>\n<body class='a b'>&amp; <br/></body>\n</html>",
    "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-</parameter>\n+</function>\n x\n",
    'def f(x):\n\treturn {"a": [x, \'b\']}  # \\n "\'" \\\n',
    "```json\n{}\n```", "<think>hm</think>", "[TOOL_CALLS]", "{{ a }} {% b %}", "null", "5", "\n", "\r\n", " ", '"',
    "'", "\\", "</", "<", ">", "é", "北京", "👩‍👩‍👧", "\x00", "\u2028", "<parameter=a>", "<function=f>",
    "<function=f>{{ a }}", "<tool_call>{", "<invoke name='f'>",
)  # fmt: skip
TEXT = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=6
).map(lambda pieces: "".join(pieces) + ".")  # as a closing tag of the call may not be what a value ends with
PLAIN_TEXT = st.text("abc é\n\"'\\{}[],:", max_size=8)
INTEGERS, FLAGS = st.integers(-(10**20), 10**20), st.booleans()
LISTS = st.lists(INTEGERS | PLAIN_TEXT | FLAGS | st.none(), max_size=3)
OBJECTS = st.fixed_dictionaries({}, optional={"k": PLAIN_TEXT, "n": INTEGERS, "l": LISTS, "o": st.just({})})
VALUES: Mapping[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": ({"type": "string"}, TEXT),
    "note": ({"type": ["string", "null"]}, TEXT | st.none()),
    "mode": ({"enum": ["a b", "c", 3, None, True]}, st.sampled_from(["a b", "c", 3, None, True])),
    "n": ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, INTEGERS | st.none()),
    "x": ({"$ref": "#/$defs/Number"}, st.floats(allow_nan=False, allow_infinity=False) | INTEGERS),
    "flag": ({"type": "boolean"}, FLAGS),
    "items": ({"type": "array"}, LISTS),
    "place": ({"oneOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}, OBJECTS | st.none()),
}
SCHEMA = {
    "type": "object",
    "properties": {key: schema for key, (schema, _) in VALUES.items()},
    "$defs": {"Number": {"type": "number"}, "Place": {"type": "object"}},
}
TOOLS = [Tool(name, parameters=SCHEMA) for name in ("f", "files.read-all")]
CALLS = st.lists(
    st.tuples(
        st.sampled_from([tool.name for tool in TOOLS]),
        st.fixed_dictionaries({}, optional={key: values for key, (_, values) in VALUES.items()}),
    ),
    min_size=1,
    max_size=3,
)


def read(parser: type[ToolParser], text: str, cuts: Sequence[int] = (), tools: Sequence[Tool] = TOOLS) -> Folded:
    stream = parser(ParserContext(tools=tools))
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [Chunk(text[start:end]) for start, end in itertools.pairwise(places)]
    events = [event for piece in pieces for event in stream.feed(piece)]
    events += stream.finish()
    check_events(events)
    return fold(events)


def says(form: Format, calls: Calls) -> bool:
    return not any(mark in plain(value) for _, each in calls for value in each.values() for mark in form.unsayable)


@EACH_FORMAT
@settings(deadline=None, max_examples=60)
@given(calls=CALLS, cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_calls_with_values_of_any_type_are_read_back(form, calls, cuts):
    if not says(form, calls):
        return
    text = form.write(calls)
    for parser in (form.parser, AutoToolParser):
        folded = read(parser, text, cuts)
        assert (list(folded.calls), folded.content) == (calls, ""), parser.__name__


@EACH_FORMAT
@settings(deadline=None, max_examples=60)
@given(calls=CALLS, length=st.integers(0, 10_000), end=st.sampled_from(["", ".", "\n\nDone."]))
def test_a_completion_cut_off_anywhere_gives_the_calls_that_were_complete(form, calls, length, end):
    if not says(form, calls):
        return
    text = form.write(calls) + end
    text = text[: length % (len(text) + 1)]
    if text.rstrip().endswith(tuple(getattr(form.parser, "value_ends", ()))):
        return  # a closing tag that nothing follows is one
    read_calls = list(read(form.parser, text).calls)
    assert read_calls == calls[: len(read_calls)]


@EACH_TAGGED_FORMAT
@pytest.mark.parametrize("before", ["", "Example:\n"])
@pytest.mark.parametrize("after", ["", "\nEnd."])
@pytest.mark.parametrize("inner", [{"text": "x"}, {"text": "x", "n": 5}, {}])
def test_a_value_may_hold_whole_calls_of_its_own_format(form, before, after, inner):
    example = form.write([("f", inner), ("g", inner)])
    calls = [("f", {"text": f"{before}{example}{after}", "n": 1}), ("f", {"n": 2, "text": example})]
    for cuts in ((), range(0, 2_000, 3)):
        folded = read(form.parser, form.write(calls), cuts)
        assert (list(folded.calls), folded.content) == (calls, "")


@EACH_TAGGED_FORMAT
def test_a_tool_with_very_many_parameters_is_no_slower_for_each_value(form):
    names = [f"k{i}" for i in range(20_000)]
    tool = Tool("f", parameters={"properties": {name: {"type": "string"} for name in names}})
    calls = [("f", {name: f"<parameter=x{i}>" for i, name in enumerate(names[:500])})]
    assert read(form.parser, form.write(calls), (), [tool]).calls == calls
