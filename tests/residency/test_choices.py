"""Which parsers and cache a model gets, and what a wrong choice costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_mlx_caches.lru import LRUCache
from vllm_mlx_core.api import (
    CachePolicy,
    CacheSpec,
    Checkpoint,
    EngineSettings,
    LoadOptions,
    ModelFamily,
    ParserChoice,
    PluginError,
    Settings,
    UsageError,
)
from vllm_mlx_core.host import Host
from vllm_mlx_core.host.discovery import Entry
from vllm_mlx_core.residency.cache_choice import CacheChoice
from vllm_mlx_core.residency.choices import check_names, choose_parsers, make_cache
from vllm_mlx_core.residency.loader import load_model

QWEN3 = Checkpoint(Path("qwen3"), overrides={"model_type": "qwen3"})


@pytest.fixture(scope="module")
def host() -> Host:
    host = Host()
    host.load(["vllm_mlx_core.testing.scripted"])
    return host


def test_parsers_come_from_the_checkpoint_with_a_reason(host):
    choice = choose_parsers(QWEN3, "text", ModelFamily, host, Settings())
    assert choice[:2] == ("hermes", "qwen3")
    assert choice.reason


def test_flags_win_and_none_switches_off(host):
    flags = Settings(tool_parser="none", reasoning_parser="think")
    choice = choose_parsers(Checkpoint(Path("x")), "text", ModelFamily, host, flags)
    assert choice[:2] == (None, "think")
    assert "--tool-call-parser" in choice.reason


def test_the_template_that_an_operator_gives_is_the_one_that_decides(host):
    template = "{% for tool in tools %}{{ tool }}{% endfor %}[TOOL_CALLS]"
    loaded = load_model("scripted", host, Settings(), LoadOptions(chat_template=template))
    try:
        assert loaded.parsers.tool == "mistral"
    finally:
        loaded.client.close()


def test_a_family_that_knows_its_parsers_is_asked_before_the_plugins(host):
    class Mine(ModelFamily):
        parsers = ParserChoice(reasoning="think")

    assert choose_parsers(QWEN3, "mine", Mine, host, Settings()) == (None, "think", "model family mine")


def test_cache_options_are_parsed_and_unknown_ones_named(host):
    assert make_cache("lru:max_entries=3", host, EngineSettings()).spec.options == {"max_entries": "3"}
    assert make_cache("off", host, EngineSettings(cache_memory_bytes=17)).spec.max_bytes == 17
    with pytest.raises(UsageError, match="key=value"):
        make_cache("lru:three", host, EngineSettings())
    with pytest.raises(UsageError, match="sise"):
        make_cache("lru:sise=3", host, EngineSettings())
    with pytest.raises(PluginError, match="lru"):
        make_cache("lrv", host, EngineSettings())


@pytest.mark.parametrize(
    "settings",
    [
        Settings(tool_parser="hermess"),
        Settings(reasoning_parser="thinc"),
        Settings(engine=EngineSettings(cache="lrv")),
    ],
)
def test_a_name_that_is_unknown_stops_the_start_before_anything_is_loaded(host, settings):
    with pytest.raises(PluginError, match="Did you mean"):
        check_names(host, settings)
    with pytest.raises(PluginError, match="Did you mean"):
        load_model("does/not-exist", host, settings, LoadOptions())


def test_a_model_is_served_under_its_name_its_alias_and_default(host):
    loaded = load_model("scripted", host, Settings(served_model_name="mine"), LoadOptions())
    try:
        assert loaded.info.id == "mine"
        assert set(loaded.info.aliases) == {"scripted", "default"}
    finally:
        loaded.client.close()


def test_a_policy_lies_over_the_one_that_is_named_last(host):
    class Cover(LRUCache):
        is_cover = True

        def __init__(self, spec: CacheSpec) -> None:
            super().__init__(CacheSpec(max_bytes=spec.max_bytes))
            self.given = spec

    host.cache_policies.add(Entry("cover", Cover, "tests", "0"))
    settings = EngineSettings(cache_memory_bytes=5)
    policy = make_cache("cover:a=1, b=2,over=lru:max_entries=7", host, settings)
    assert isinstance(policy, Cover)
    assert policy.given.options == {"a": "1", "b": "2"}
    assert isinstance(policy.given.over, LRUCache)
    assert policy.given.over.spec == CacheSpec(max_bytes=5, options={"max_entries": "7"}, min_tokens=16)
    alone = make_cache("cover", host, settings)
    assert isinstance(alone, Cover)
    assert alone.given.over is None
    for choice in ("lru:over=lru", "cover:over=lru:over=lru"):
        with pytest.raises(UsageError, match="'lru' does not work over another one"):
            make_cache(choice, host, settings)


def test_clients_read_the_names_of_policies_and_no_paths():
    assert CacheChoice.parse("lru:max_entries=7").shown == "lru"
    assert CacheChoice.parse("cover:dir=/home/me,over=lru:max_entries=7").shown == "cover over lru"


def test_a_cache_policy_that_cannot_be_made_is_one_clear_error(host):
    class Broken(CachePolicy):
        def __init__(self, spec: CacheSpec) -> None:
            raise KeyError("nothing")

        match = insert = evict = clear = stats = None  # type: ignore[assignment]

    host.cache_policies.add(Entry("broken-cache", Broken, "tests", "0"))
    with pytest.raises(PluginError, match=r"broken-cache.*KeyError"):
        make_cache("broken-cache", host, EngineSettings())
