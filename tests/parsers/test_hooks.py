"""The hook that chooses parsers, and that what it may choose exists."""

from __future__ import annotations

import json
from importlib.metadata import entry_points

import pluggy
import pytest

from vllm_mlx_core.api import Checkpoint, ParserChoice, ReasoningParser, ToolParser, hookimpl
from vllm_mlx_core.api import hooks as specs
from vllm_mlx_parsers import hooks
from vllm_mlx_parsers.choice import FAMILIES, TAGS


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


def test_the_checkpoint_s_config_and_template_decide(choose):
    assert choose("qwen3") == ParserChoice("hermes", "qwen3", "model_type qwen3")
    assert choose("", "[TOOL_CALLS]") == ParserChoice("mistral", None, "chat template teaches mistral calls")
    assert choose() is None


def test_a_template_for_tools_has_its_say(choose, tmp_path):
    folder = tmp_path / "additional_chat_templates"
    folder.mkdir()
    (folder / "tool_use.jinja").write_text("[TOOL_CALLS]")
    choice = choose("", "{{ messages }}")
    assert choice == ParserChoice("mistral", None, "chat template teaches mistral calls")


def test_other_plugins_are_asked_first(choose):
    assert choose("qwen3", family="acme") == ParserChoice("acme", None, "acme")


@pytest.mark.parametrize(
    ("group", "names", "base"),
    [
        ("vllm_mlx.tool_parsers", {"auto", *(family.tool for family in FAMILIES)}, ToolParser),
        (
            "vllm_mlx.reasoning_parsers",
            {*TAGS, *(family.reasoning for family in FAMILIES if family.reasoning is not None)},
            ReasoningParser,
        ),
    ],
)
def test_every_name_that_may_be_chosen_is_registered(group, names, base):
    registered = {
        point.name: point for point in entry_points(group=group) if point.value.startswith("vllm_mlx_parsers.")
    }
    assert names - registered.keys() == set()
    assert all(issubclass(registered[name].load(), base) for name in names)
