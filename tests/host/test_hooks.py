"""Every hook through the host's typed method."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_mlx_core.api import (
    Checkpoint,
    EngineFailed,
    GenerateRequest,
    InvalidRequest,
    LoadOptions,
    ModelNotFound,
    ParserChoice,
    PluginError,
    RequestSummary,
    Settings,
    StepStats,
    UnsupportedModel,
    Usage,
    UsageError,
    hookimpl,
)
from vllm_mlx_core.host import Host

MODEL = Checkpoint(Path("model"), name="acme/model", overrides={"model_type": "acme"})
SUMMARY = RequestSummary(
    request_id="1", model="m", user=None, usage=Usage(), finish_reasons=["stop"], first_token_s=None, total_s=0
)
STEP = StepStats(model="m", running=1, waiting=0, prefilled_tokens=0, generated_tokens=1, step_s=0.1)


KINDS = ("tool_parsers", "reasoning_parsers", "model_families", "cache_policies")


def choices(host: Host) -> tuple[str, ParserChoice, str | None]:
    return host.detect_family(MODEL), host.choose_parsers(MODEL, "text"), host.choose_cache(MODEL, "text", Settings())


@pytest.fixture
def load(site: Any) -> Callable[..., Host]:
    """Make a host with plugins given as hooks by name; the first one given is asked first."""

    def make(*plugins: dict[str, Callable[..., Any]], families: tuple[str, ...] = ()) -> Host:
        names = []
        for number, hooks in enumerate(plugins):
            name = f"plugin_{len(plugins) - number}"
            site.module(name, "")
            module = __import__(name)
            for hook, function in hooks.items():
                setattr(module, hook, hookimpl(function))
            names.append(name)
        if families:
            site.distribution("families", {"model_families": dict.fromkeys(families, "some:Family")})
        host: Host = site.host(*reversed(names))
        return host

    return make


def test_vllm_mlx_add_options_extends_a_parser(load):
    host = load({"vllm_mlx_add_options": lambda parser: parser.add_argument("--colour")})
    parser = argparse.ArgumentParser()
    host.add_options(parser)
    assert parser.parse_args(["--colour", "red"]).colour == "red"


def test_vllm_mlx_add_options_that_exist_already_are_the_plugins_fault(load):
    host = load({"vllm_mlx_add_options": lambda parser: parser.add_argument("--port")})
    parser = argparse.ArgumentParser()
    parser.add_argument("--port")
    with pytest.raises(
        PluginError, match=r"^Plugin 'plugin_1' failed in vllm_mlx_add_options: ArgumentError: .*--port"
    ):
        host.add_options(parser)


def test_vllm_mlx_configure_sees_the_settings_and_may_object(load):
    def object_to_port(settings):
        raise UsageError(f"not port {settings.port}")

    with pytest.raises(UsageError, match=r"^not port 8000$"):
        load({"vllm_mlx_configure": object_to_port}).configure(Settings())


def test_a_setup_hook_that_fails_stops_the_start_and_is_named(load):
    with pytest.raises(PluginError, match=r"^Plugin 'plugin_1' failed in vllm_mlx_configure: ZeroDivisionError: "):
        load({"vllm_mlx_configure": lambda: 1 / 0}).configure(Settings())


def test_vllm_mlx_resolve_model_gets_what_the_operator_said(load):
    asked = []

    def resolve(reference, options):
        asked.append((reference, options.offline))
        return MODEL

    host = load({"vllm_mlx_resolve_model": resolve})
    assert host.resolve_model(None, LoadOptions(offline=True)) is MODEL
    assert asked == [(None, True)]


def test_a_model_that_no_plugin_finds_is_not_found(load):
    host = load({"vllm_mlx_resolve_model": lambda: None})
    with pytest.raises(ModelNotFound, match=r"^No plugin finds a model 'x'; see `vllm-mlx plugins`"):
        host.resolve_model("x", LoadOptions())
    with pytest.raises(ModelNotFound, match=r"^There is no default model; "):
        host.resolve_model(None, LoadOptions())


def test_the_first_answer_wins_and_later_plugins_are_not_asked(load):
    asked = []
    host = load(
        {"vllm_mlx_choose_cache": lambda: asked.append("first")},
        {"vllm_mlx_choose_cache": lambda: "second"},
        {"vllm_mlx_choose_cache": lambda: asked.append("third")},
    )
    assert host.choose_cache(MODEL, "text", Settings()) == "second"
    assert asked == ["first"]


def test_vllm_mlx_detect_family_prefers_a_plugins_answer(load):
    seen = []

    def detect(checkpoint, families):
        seen.append((checkpoint, families))
        return "special"

    host = load({"vllm_mlx_detect_family": detect}, families=("acme", "special"))
    assert host.detect_family(MODEL) == "special"
    assert seen == [(MODEL, ["acme", "special"])]


def test_without_an_answer_the_family_is_the_model_type(load):
    assert load(families=("acme", "other")).detect_family(MODEL) == "acme"


def test_a_checkpoint_that_no_family_loads_is_unsupported(load):
    message = r"^No installed model family loads 'acme/model' \(model_type 'acme'\)\. Did you mean 'acme2'\?$"
    with pytest.raises(UnsupportedModel, match=message):
        load(families=("acme2",)).detect_family(MODEL)


def test_a_checkpoint_without_model_type_is_unsupported(load, tmp_path):
    with pytest.raises(UnsupportedModel, match=r"^No installed model family loads '.*' \(no model_type\)\.$"):
        load().detect_family(Checkpoint(tmp_path))


def test_an_answer_that_is_not_installed_is_unsupported_and_names_the_plugin(load):
    host = load({"vllm_mlx_detect_family": lambda: "acne"}, families=("acme",))
    message = (
        r"^Plugin 'plugin_1' wants to load 'acme/model' with the model family 'acne', which is not installed\."
        r" Did you mean 'acme'\?$"
    )
    with pytest.raises(UnsupportedModel, match=message):
        host.detect_family(MODEL)


DECISIONS = {
    "vllm_mlx_detect_family": "return 'good'",
    "vllm_mlx_choose_parsers": "return ParserChoice('good', 'good')",
    "vllm_mlx_choose_cache": "return 'good:size=1'",
}


def test_a_name_that_several_packages_offer_means_that_of_the_plugin_which_chose_it(site, hooks):
    body = "\n".join(f"@hookimpl\ndef {hook}(checkpoint):\n    {answer}\n" for hook, answer in DECISIONS.items())
    hooks("chooser", body, distribution=None)
    offers = {kind: {"good": "some:Class"} for kind in KINDS}
    site.distribution("acme", offers | {"": {"chooser": "chooser"}})
    assert choices(site.host()) == ("good", ParserChoice("good", "good"), "good:size=1")
    site.distribution("rival", offers)
    assert choices(site.host()) == ("good@acme", ParserChoice("good@acme", "good@acme"), "good@acme:size=1")


def test_a_plugin_without_that_name_of_its_own_leaves_it_to_the_operator(site, hooks):
    hooks("chooser", "@hookimpl\ndef vllm_mlx_choose_parsers(checkpoint):\n    return ParserChoice('good')\n")
    for package in ("acme", "rival"):
        site.distribution(package, {"tool_parsers": {"good": "some:Class"}})
    host = site.host()
    assert host.choose_parsers(MODEL, "text") == ParserChoice("good")
    with pytest.raises(PluginError, match=r"^tool parser 'good' is offered more than once; choose good@\S+ or good@"):
        host.tool_parsers.get("good")


def test_vllm_mlx_choose_parsers_answers_with_names(load):
    choice = ParserChoice("acme", None, "because")
    assert load({"vllm_mlx_choose_parsers": lambda checkpoint, family: choice}).choose_parsers(MODEL, "text") == choice


def test_without_an_opinion_there_is_no_parser_and_no_cache(load):
    assert load().choose_parsers(MODEL, "text") == ParserChoice()
    assert load().choose_cache(MODEL, "text", Settings()) is None


def test_vllm_mlx_choose_cache_answers_with_a_specification(load):
    host = load({"vllm_mlx_choose_cache": lambda family: f"lru:for={family}"})
    assert host.choose_cache(MODEL, "text", Settings()) == "lru:for=text"


def test_vllm_mlx_cover_cache_hears_what_was_chosen_and_answers_with_what_lies_over_it(load):
    assert load().cover_cache("lru", Settings()) is None
    host = load({"vllm_mlx_cover_cache": lambda cache: f"disk:over={cache}"})
    assert host.cover_cache("lru:max_entries=2", Settings()) == "disk:over=lru:max_entries=2"


def test_an_answer_of_the_wrong_type_names_the_plugin(load):
    message = r"^Plugin 'plugin_1' answered vllm_mlx_choose_parsers with 'hermes', which is not a ParserChoice\.$"
    with pytest.raises(PluginError, match=message):
        load({"vllm_mlx_choose_parsers": lambda: "hermes"}).choose_parsers(MODEL, "text")


def test_vllm_mlx_mount_gets_app_and_engine_and_its_failure_stops_the_start(load):
    app, engine = SimpleNamespace(), SimpleNamespace()
    mounted = []
    load({"vllm_mlx_mount": lambda app, engine: mounted.append((app, engine))}).mount(app, engine)
    assert mounted == [(app, engine)]
    with pytest.raises(PluginError, match=r"^Plugin 'plugin_1' failed in vllm_mlx_mount: TypeError: "):
        load({"vllm_mlx_mount": lambda app: app["x"]}).mount(app, engine)


def test_vllm_mlx_request_received_adjusts_a_request_in_turn(load):
    def add(number: int) -> Callable[[GenerateRequest], None]:
        def received(request: GenerateRequest) -> None:
            request.priority = request.priority * 10 + number

        return received

    host = load({"vllm_mlx_request_received": add(1)}, {"vllm_mlx_request_received": add(2)})
    request = GenerateRequest(request_id="1", model="m", prompt="p")
    host.request_received(request)
    assert request.priority == 12


def test_a_plugin_may_refuse_a_request(load):
    def refuse():
        raise InvalidRequest("not today", param="model")

    host = load({"vllm_mlx_request_received": refuse})
    with pytest.raises(InvalidRequest, match=r"^not today$"):
        host.request_received(GenerateRequest(request_id="1", model="m", prompt=""))


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_a_plugin_that_fails_on_a_request_fails_that_request_and_tells_the_client_nothing(load, caplog, failure):
    def fail():
        raise failure("secret")

    host = load({"vllm_mlx_request_received": fail})
    with pytest.raises(EngineFailed, match=r"^The plugin 'plugin_1' failed on this request\.$"):
        host.request_received(GenerateRequest(request_id="1", model="m", prompt=""))
    assert "secret" in caplog.text


def test_vllm_mlx_request_finished_and_vllm_mlx_step_finished_are_observed(load):
    seen: list[object] = []
    host = load({"vllm_mlx_request_finished": lambda summary: seen.append(summary)})
    host.request_finished(SUMMARY)
    host = load({"vllm_mlx_step_finished": lambda stats: seen.append(stats)})
    host.step_finished(STEP)
    assert seen == [SUMMARY, STEP]


def test_an_observer_that_raises_is_reported_once_and_muted_and_the_others_go_on(load, caplog):
    seen = []

    def fail():
        seen.append("bad")
        raise RuntimeError("boom")

    bad = {
        "vllm_mlx_request_finished": fail,
        "vllm_mlx_step_finished": lambda: seen.append("muted"),
        "vllm_mlx_shutdown": lambda: seen.append("closed"),
    }
    host = load(bad, {"vllm_mlx_request_finished": lambda: seen.append("good")})
    host.request_finished(SUMMARY)
    host.request_finished(SUMMARY)
    host.step_finished(STEP)
    assert seen == ["bad", "good", "good"]
    assert [record.message for record in caplog.records] == [
        "Plugin 'plugin_2' failed in vllm_mlx_request_finished: RuntimeError: boom It is muted from now on."
    ]


def test_vllm_mlx_shutdown_reaches_every_plugin_muted_or_not(load):
    closed = []
    host = load(
        {"vllm_mlx_step_finished": lambda: 1 / 0, "vllm_mlx_shutdown": lambda: closed.append("muted")},
        {"vllm_mlx_shutdown": lambda: 1 / 0},
        {"vllm_mlx_shutdown": lambda: closed.append("last")},
    )
    host.step_finished(STEP)
    host.shutdown()
    assert closed == ["muted", "last"]


def test_vllm_mlx_register_is_called_for_every_plugin(load):
    host = load(
        {"vllm_mlx_register": lambda registrar: registrar.add("model_families", "one", "a:B")},
        {"vllm_mlx_register": lambda registrar: registrar.add("model_families", "two", "a:B")},
    )
    assert host.model_families.names() == ["one", "two"]
