"""Values that mention tags of their own format, as documentation does: only a whole opening tag begins an example."""

from __future__ import annotations

import pytest

from vllm_mlx_core.api import ParserContext, Tool
from vllm_mlx_core.testing.events import fold
from vllm_mlx_parsers.tools.glm45 import GLMToolParser
from vllm_mlx_parsers.tools.minimax_m2 import MiniMaxM2ToolParser
from vllm_mlx_parsers.tools.qwen3_coder import Qwen3CoderToolParser
from vllm_mlx_parsers.tools.seed_oss import SeedOSSToolParser

WRITE = Tool("write", parameters={"properties": {"content": {"type": "string"}, "path": {"type": "string"}}})


def qwen(content, path):
    values = f"<parameter=content>\n{content}\n</parameter>\n<parameter=path>\n{path}\n</parameter>\n"
    return f"<tool_call>\n<function=write>\n{values}</function>\n</tool_call>"


def seed(content, path):
    values = f"<parameter=content>{content}</parameter>\n<parameter=path>{path}</parameter>\n"
    return f"<seed:tool_call>\n<function=write>\n{values}</function>\n</seed:tool_call>"


def glm(content, path):
    values = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
        for key, value in (("content", content), ("path", path))
    )
    return f"<tool_call>write\n{values}</tool_call>"


def minimax(content, path):
    values = f'<parameter name="content">{content}</parameter>\n<parameter name="path">{path}</parameter>\n'
    return f'<minimax:tool_call>\n<invoke name="write">\n{values}</invoke>\n</minimax:tool_call>'


def check(run, width, parser, write, value):
    completion = write(value, "notes.md")
    folded = fold(run(parser(ParserContext(tools=[WRITE])), f"{completion}\n{completion}", width))
    assert folded.calls == [("write", {"content": value, "path": "notes.md"})] * 2
    assert not folded.content.strip()


@pytest.mark.parametrize(
    ("parser", "write", "value"),
    [
        (Qwen3CoderToolParser, qwen, "Calls open with `<function=`, values with `<parameter=`."),
        (Qwen3CoderToolParser, qwen, "Look for <function= or <function name= and then <parameter name= in it."),
        (Qwen3CoderToolParser, qwen, "A <tool_call> <function= is where it begins."),
        (Qwen3CoderToolParser, qwen, "A <tool_call>\n<function=...>\n... is where it begins."),
        (Qwen3CoderToolParser, qwen, "A <tool_call>, then <function=f>, then more."),
        (SeedOSSToolParser, seed, "Either <seed:tool_call> or <function= may come first, and <parameter= never."),
        (GLMToolParser, glm, "After `<tool_call>` come a name and `<arg_key>`, `</tool_call>` ends it."),
        (GLMToolParser, glm, "A <tool_call>, and in it <arg_key>k</arg_key>."),
        (MiniMaxM2ToolParser, minimax, "Open with `<invoke`, then `<parameter` for each."),
    ],
)
def test_an_opening_tag_that_is_not_whole_or_not_followed_as_in_calls_is_text(run, width, parser, write, value):
    check(run, width, parser, write, value)


@pytest.mark.parametrize(
    "value", ["Put it into <parameter=path> here.", "- `<parameter=path>`\n- `<parameter=content>`"]
)
def test_a_declared_parameter_mentioned_within_a_line_ends_no_value_that_has_lines_of_its_own(run, width, value):
    check(run, width, Qwen3CoderToolParser, qwen, value)


def test_a_parameter_at_the_beginning_of_a_line_ends_the_value_before_it_that_nothing_closed(run, width):
    completion = "<function=write>\n<parameter=content>\nx\n  <parameter=path>\na\n</parameter>\n</function>"
    folded = fold(run(Qwen3CoderToolParser(ParserContext(tools=[WRITE])), completion, width))
    assert folded.calls == [("write", {"content": "x\n  ", "path": "a"})]


def test_a_value_on_the_line_of_its_tag_may_be_ended_by_a_parameter_on_that_line(run, width):
    completion = "<function=write>\n<parameter=content>x<parameter=path>a</parameter>\n</function>"
    folded = fold(run(Qwen3CoderToolParser(ParserContext(tools=[WRITE])), completion, width))
    assert folded.calls == [("write", {"content": "x", "path": "a"})]


def test_examples_of_whole_calls_in_their_wrappers_are_still_part_of_the_value(run, width):
    check(run, width, Qwen3CoderToolParser, qwen, f"Two calls:\n{qwen('a', 'b')}\n{qwen('c', 'd')}\nDone.")
    check(run, width, GLMToolParser, glm, f"Two calls:\n{glm('a', 'b')}\n{glm('c', 'd')}\nDone.")
