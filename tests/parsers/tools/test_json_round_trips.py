"""What models write in the formats with JSON arguments is read back as the calls and the text they meant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_mlx_core.api import Chunk, Event, ParserContext, Tool, ToolParser
from vllm_mlx_core.testing.events import Folded, check_events, fold
from vllm_mlx_parsers.tools.cohere import CohereToolParser
from vllm_mlx_parsers.tools.deepseek_v3 import DeepSeekV3ToolParser
from vllm_mlx_parsers.tools.deepseek_v31 import DeepSeekV31ToolParser
from vllm_mlx_parsers.tools.functionary import FunctionaryToolParser
from vllm_mlx_parsers.tools.granite import GraniteToolParser
from vllm_mlx_parsers.tools.harmony import HarmonyToolParser
from vllm_mlx_parsers.tools.hermes import HermesToolParser
from vllm_mlx_parsers.tools.hunyuan import HunyuanToolParser
from vllm_mlx_parsers.tools.jamba import JambaToolParser
from vllm_mlx_parsers.tools.kimi_k2 import KimiK2ToolParser
from vllm_mlx_parsers.tools.llama3_json import Llama3JSONToolParser
from vllm_mlx_parsers.tools.longcat import LongCatToolParser
from vllm_mlx_parsers.tools.mistral import MistralToolParser
from vllm_mlx_parsers.tools.nemotron import NemotronToolParser
from vllm_mlx_parsers.tools.phi4_mini import Phi4MiniToolParser
from vllm_mlx_parsers.tools.raw_json import JSONToolParser
from vllm_mlx_parsers.tools.xlam import XLAMToolParser

Calls = Sequence[tuple[str, Mapping[str, Any]]]
NAMES = ("get_weather", "f", "my-server.read_file")
TOOLS = tuple(Tool(name) for name in NAMES)


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def each(before: str, after: str, separator: str = "\n", key: str = "arguments") -> Callable[[Calls], str]:
    """Write one object for each call, between markers."""
    return lambda calls: separator.join(f"{before}{dump({'name': name, key: args})}{after}" for name, args in calls)


def together(before: str, after: str) -> Callable[[Calls], str]:
    """Write all calls as one list, between markers."""
    return lambda calls: before + dump([{"name": name, "arguments": args} for name, args in calls]) + after


def named(before: str, between: str, after: str, around: tuple[str, str] = ("", "")) -> Callable[[Calls], str]:
    """Write name and arguments apart, with markers around both; ``{i}`` counts the calls."""

    def write(calls: Calls) -> str:
        parts = (
            f"{before}{name}{between.replace('{i}', str(i))}{dump(args)}{after}" for i, (name, args) in enumerate(calls)
        )
        return around[0] + "".join(parts) + around[1]

    return write


def actions(calls: Calls) -> str:
    listed = [{"tool_call_id": str(i), "tool_name": name, "parameters": args} for i, (name, args) in enumerate(calls)]
    return f"<|START_ACTION|>{dump(listed)}<|END_ACTION|>"


def after_start(calls: Calls) -> str:
    write = named("<|start|>assistant<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>")
    return write(calls)


class Format(NamedTuple):
    parser: type[ToolParser]
    write: Callable[[Calls], str]


_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
FORMATS = {
    "hermes": Format(HermesToolParser, each("<tool_call>\n", "\n</tool_call>")),
    "longcat": Format(LongCatToolParser, each("<longcat_tool_call>\n", "\n</longcat_tool_call>")),
    "granite": Format(GraniteToolParser, together("<|tool_call|>", "")),
    "granite-20b": Format(GraniteToolParser, each("<function_call> ", "", " ")),
    "nemotron": Format(NemotronToolParser, together("<TOOLCALL>", "</TOOLCALL>")),
    "mistral by name": Format(MistralToolParser, named("[TOOL_CALLS]", "[ARGS]", "")),
    "mistral list": Format(MistralToolParser, together("[TOOL_CALLS] ", "")),
    "llama": Format(Llama3JSONToolParser, each("", "", "; ", "parameters")),
    "xlam": Format(XLAMToolParser, together("", "")),
    "phi4_mini": Format(Phi4MiniToolParser, together("functools", "")),
    "jamba": Format(JambaToolParser, together("<tool_calls>", "</tool_calls>")),
    "hunyuan": Format(HunyuanToolParser, together("<tool_calls>", "</tool_calls>")),
    "cohere": Format(CohereToolParser, actions),
    "json": Format(JSONToolParser, each("", "")),
    "fenced json": Format(JSONToolParser, together("```json\n", "\n```")),
    "deepseek_v3": Format(
        DeepSeekV3ToolParser,
        named("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>", _DEEPSEEK),
    ),
    "deepseek_v31": Format(
        DeepSeekV31ToolParser, named("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", _DEEPSEEK)
    ),
    "kimi_k2": Format(
        KimiK2ToolParser,
        named("<|tool_call_begin|>functions.", ":{i}<|tool_call_argument_begin|>", "<|tool_call_end|>", _KIMI),
    ),
    "functionary v3.1": Format(FunctionaryToolParser, named("<function=", ">", "</function>")),
    "functionary v3.2": Format(FunctionaryToolParser, named(">>>", "\n", "")),
    "harmony": Format(HarmonyToolParser, after_start),
}
SPOKEN_IN_MESSAGES = {"functionary v3.2", "harmony"}
"""Formats in which text around calls has a message of its own."""

MARKERS = sorted({marker for each in FORMATS.values() for marker in each.parser.special_tokens})
HARD = (*MARKERS, *"`{}[]\"\\'\n", "```", "functools[", ">>>f\n", "</function>", "</think>")
texts = st.text(max_size=6) | st.lists(st.sampled_from(HARD) | st.text(max_size=3), max_size=4).map("".join)
texts = texts.map(lambda text: text.encode("utf-8", "replace").decode())
scalars = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(st.tuples(st.sampled_from(NAMES), st.dictionaries(texts, values, max_size=3)), min_size=1, max_size=3)
words = st.lists(
    st.sampled_from(["Hello", "a < b", "日本語", "(1, 2);", "it's", "👩‍👩‍👧", "`x`", "\n", "```py\nx = '```'\n```\n"]),
    max_size=4,
).map(" ".join)


def read(parser: type[ToolParser], text: str, cuts: Sequence[int] = ()) -> Folded:
    stream = parser(ParserContext(tools=TOOLS))
    events: list[Event] = []
    start = 0
    for cut in (*cuts, len(text)):
        events += stream.feed(Chunk(text[start:cut]))
        start = max(start, cut)
    events += stream.finish()
    check_events(events)
    return fold(events)


@pytest.mark.parametrize("name", FORMATS)
def test_random_calls_and_the_text_around_them_are_read_back(name):
    """Names, values and their order are exact at random cuts; of the text only white space next to calls goes."""
    parser, write = FORMATS[name]

    @settings(max_examples=60, deadline=None, database=None)
    @given(calls, words, words, st.lists(st.integers(0, 300), max_size=8).map(sorted))
    def check(wanted, before, after, cuts):
        before, after = ("", "") if name in SPOKEN_IN_MESSAGES else (before, after)
        text = "\n".join(part for part in (before, write(wanted), after) if part)
        folded = read(parser, text, [cut for cut in cuts if cut < len(text)])
        assert folded.calls == [(name, json.loads(dump(args))) for name, args in wanted]
        assert folded.content.split() == f"{before} {after}".split()

    check()


THREE: list[tuple[str, Mapping[str, Any]]] = [
    ("get_weather", {"city": "São {Paulo}"}),
    ("f", {}),
    ("f", {"x": [1, {"y": None}]}),
]


@pytest.mark.parametrize("name", FORMATS)
def test_cut_off_anywhere_complete_calls_stay_and_no_marker_shows(name):
    parser, write = FORMATS[name]
    text = write(THREE)
    hidden = [marker for marker in parser.special_tokens if len(marker) > 1]
    most = 0
    for length in range(len(text) + 1):
        folded = read(parser, text[:length])
        assert folded.calls == THREE[: len(folded.calls)]
        assert not any(marker in folded.content for marker in hidden), text[:length]
        assert len(folded.calls) >= most, text[:length]
        most = len(folded.calls)
    assert most == len(THREE)
