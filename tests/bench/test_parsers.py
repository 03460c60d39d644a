"""The benchmark of the parsers, on inputs too small to say anything about speed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vllm_mlx_core.api import ToolParser
from vllm_mlx_core.host.manager import Host
from vllm_mlx_core.host.report import rows
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.reasoning.qwen3 import Qwen3ReasoningParser
from vllm_mlx_parsers.tools.gemma4 import Gemma4ToolParser
from vllm_mlx_parsers.tools.raw_json import JSONToolParser

SCRIPT = Path(__file__).parents[2] / "bench" / "parsers.py"
NO_LIMITS = ["--floor", "0", "--growth", "1e9"]
TINY = ["--size", "1200", "--repeats", "1"]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_parsers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(output: str) -> list[str]:
    """Return the names in the first column of the tables."""
    return re.findall(r"^\| ([\w.-]+) \|.*\d", output, re.MULTILINE)


def test_every_registered_parser_is_measured_by_its_own_sample(bench, capsys):
    assert bench.main([*TINY, *NO_LIMITS]) == 0
    output = capsys.readouterr()
    host = Host()
    host.load()
    kinds = ("tool_parsers", "reasoning_parsers")
    assert table(output.out) == [row.name for kind in kinds for row in rows(host) if row.kind == kind]
    assert output.err == ""


def test_a_missed_limit_is_named_and_fails(bench, capsys):
    assert bench.main(["hermes", *TINY, "--floor", "1e9", "--growth", "1e9"]) == 1
    assert "tool parser hermes, one argument: " in capsys.readouterr().err
    assert bench.main(["hermes", *TINY, "--floor", "0", "--growth", "0"]) == 1
    assert "tool parser hermes, many calls: twice the input takes" in capsys.readouterr().err


def test_only_the_parsers_that_are_asked_for_are_measured(bench, capsys):
    assert bench.main(["hermes", "seed_oss", *TINY, *NO_LIMITS]) == 0
    assert table(capsys.readouterr().out) == ["hermes", "seed_oss", "seed_oss"]


def test_a_name_that_no_parser_has_fails(bench, capsys):
    assert bench.main(["hermse", *TINY, *NO_LIMITS]) == 1
    assert "no parser is called hermse" in capsys.readouterr().err


@pytest.mark.parametrize("parser", [Gemma4ToolParser, JSONToolParser])
def test_the_inputs_hold_the_calls_that_the_table_speaks_of(bench, parser: type[ToolParser]):
    content, one, many = bench.tool_cases(parser, 5000)
    assert [case.size for case in (content, one)] == pytest.approx([5000, 5000], abs=200)
    assert many.size == pytest.approx(5000, abs=200)

    def calls(case: Any) -> list[object]:
        return [call for text in case.completions for call in fold(bench.make(parser).parse(text)).calls]

    assert [len(calls(case)) for case in (content, one, many)] == [0, 1, 10]


def test_the_inputs_of_a_reasoning_parser_hold_the_thinking(bench):
    cases = list(bench.reasoning_cases(Qwen3ReasoningParser, 5000))
    lengths = [len(fold(bench.make(Qwen3ReasoningParser).parse(case.completions[0])).reasoning) for case in cases]
    assert lengths[0] == lengths[2] < 100 < 5000 <= lengths[1]


def test_a_sample_that_is_not_the_call_is_refused(bench):
    class Wrong(Gemma4ToolParser):
        sample = "Paris"

    with pytest.raises(bench.BadSample, match="not one call of get_weather"):
        list(bench.tool_cases(Wrong, 1000))
