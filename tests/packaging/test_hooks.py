"""Every hook has a typed method, is documented, and is tested."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from vllm_mlx_core.api import hooks
from vllm_mlx_core.host import Host

HOOKS = {name: function for name, function in vars(hooks).items() if name.startswith("vllm_mlx_")}


def batched(parts: list[str]) -> zip[tuple[str, str, str]]:
    return zip(parts[0::3], parts[1::3], parts[2::3], strict=True)


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.fixture(scope="module")
def sections(root):
    """The sections of the page about hooks, by hook."""
    page = (root / "docs" / "plugins" / "hooks.md").read_text(encoding="utf-8")
    parts = re.split(r"^### `(\w+)\((.*)\)`$", page, flags=re.MULTILINE)
    return {
        name: (arguments, text) for name, arguments, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    }


def test_the_page_documents_every_hook_and_no_other(sections):
    assert list(sections) == list(HOOKS), "docs/plugins/hooks.md has one heading for each, in the order of api/hooks.py"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_documented_with_its_arguments_when_it_is_called_and_an_example(hook, sections):
    arguments, text = sections[hook]
    assert arguments == ", ".join(parameters(HOOKS[hook]))
    assert re.search(r"\bCalled\b", text), "say when it is called"
    example = re.search(rf"```python\n@hookimpl\ndef {hook}\((.*)\):\n", text)
    assert example, "show an implementation"
    assert set(filter(None, example[1].split(", "))) <= set(parameters(HOOKS[hook]))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_a_typed_method_on_the_host(hook):
    if hook == "vllm_mlx_register":  # a part of loading
        return
    method = getattr(Host, hook.removeprefix("vllm_mlx_"))
    expected = [name for name in parameters(HOOKS[hook]) if name != "families"]  # the host knows the families
    assert parameters(method) == expected


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_tests(hook, root):
    source = (root / "tests" / "host" / "test_hooks.py").read_text(encoding="utf-8")
    assert re.search(rf"^def test_\w*{hook}(_|\b)", source, flags=re.MULTILINE), (
        f"tests/host/test_hooks.py: test_{hook}_…"
    )
