from __future__ import annotations

import json
from importlib.metadata import entry_points

import pluggy
import pytest

from vllm_mlx_core.api import Checkpoint, ParserChoice, ReasoningParser, ToolParser, hookimpl
from vllm_mlx_core.api import hooks as specs
from vllm_mlx_parsers import hooks

QWEN3 = """{{- "Return\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args>}\\n</tool_call>" }}
{%- if '</think>' in content %}{%- endif %}{{- '<think>\\n\\n</think>\\n\\n' }}"""
QWEN25 = """{{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}"""
QWEN3_CODER = "<tool_call>\n<function=example>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>{name}\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call> <think></think>"
R1_DISTILL = "{% if '</think>' in content %}{% endif %}<｜tool▁calls▁begin｜>"


@pytest.fixture
def choose(tmp_path):
    """Ask the hook about a checkpoint, as the host does."""
    manager = pluggy.PluginManager("vllm_mlx")
    manager.add_hookspecs(specs)

    class Other:
        """A plugin that is registered earlier and so would be asked later, were the built-in not last."""

        @hookimpl
        def vllm_mlx_choose_parsers(self, family: str) -> ParserChoice | None:
            return ParserChoice("acme", None, "acme") if family == "acme" else None

    manager.register(Other())
    manager.register(hooks)

    def ask(model_type: str = "", template: str = "", family: str = "text") -> ParserChoice | None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
        choice: ParserChoice | None = manager.hook.vllm_mlx_choose_parsers(
            checkpoint=Checkpoint(tmp_path), family=family
        )
        return choice

    return ask


def test_the_model_type_decides_and_is_named(choose):
    assert choose("qwen3", QWEN3) == ParserChoice("hermes", "think", "model_type qwen3")
    assert choose("qwen3") == ParserChoice("hermes", "think", "model_type qwen3")


def test_an_unknown_model_type_is_chosen_for_by_its_template(choose):
    reason = "chat template mentions <tool_call> and <think>"
    assert choose("acme_lm", QWEN3) == ParserChoice("hermes", "think", reason)
    assert choose("acme_lm", QWEN25) == ParserChoice("hermes", None, "chat template mentions <tool_call>")


def test_table_and_template_complete_each_other(choose):
    choice = choose("qwen2", QWEN25 + "<think>")
    assert choice == ParserChoice("hermes", "think", "model_type qwen2, chat template mentions <think>")


def test_a_model_of_the_table_whose_template_never_thinks_gets_no_reasoning_parser(choose):
    assert choose("qwen3_moe", QWEN25) == ParserChoice("hermes", None, "model_type qwen3_moe")


@pytest.mark.parametrize("model_type", ["qwen3_moe", "qwen3_next", ""])
def test_the_call_format_of_qwen3_coder_is_not_taken_for_hermes(choose, model_type):
    assert choose(model_type, QWEN3_CODER) is None


def test_reasoning_is_recognised_beside_another_family_s_calls(choose):
    assert choose("glm4_moe", GLM) == ParserChoice(None, "think", "chat template mentions <think>")
    assert choose("qwen2", R1_DISTILL) == ParserChoice(None, "think", "chat template mentions </think>")


@pytest.mark.parametrize(
    "template", ["", "{{ messages }}", "[TOOL_CALLS]", "<tool_call> without a format", '{"name": "x"}', "<seed:think>"]
)
def test_a_template_that_says_nothing_gets_no_parser(choose, template):
    assert choose("llama", template) is None


def test_other_plugins_are_asked_first(choose):
    assert choose("qwen3", QWEN3, family="acme") == ParserChoice("acme", None, "acme")


@pytest.mark.parametrize(
    ("group", "names", "base"),
    [("vllm_mlx.tool_parsers", {"hermes"}, ToolParser), ("vllm_mlx.reasoning_parsers", {"think"}, ReasoningParser)],
)
def test_the_names_that_are_chosen_are_registered(group, names, base):
    registered = {
        point.name: point for point in entry_points(group=group) if point.value.startswith("vllm_mlx_parsers.")
    }
    assert names <= registered.keys()
    assert all(issubclass(point.load(), base) for point in registered.values())
