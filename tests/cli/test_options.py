import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_mlx_core.api import ApiKey, Chat, KVQuantization, LoadOptions, Settings, UsageError
from vllm_mlx_core.cli import options, serve, serve_settings


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("vllm-mlx serve", allow_abbrev=False)
    serve.add_arguments(parser)
    return parser


def parse(*argv: str) -> tuple[argparse.Namespace, Settings, LoadOptions]:
    """What the command line ``argv`` becomes, without the record of the options themselves."""
    args = parser().parse_args(argv)
    settings = serve_settings.to_settings(args)
    return args, settings, options.load_options(args)


def flatten(settings: Settings, load: LoadOptions) -> dict[str, Any]:
    def fields(record: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
        names = getattr(record, "__dataclass_fields__", None) or record.__struct_fields__
        for name in names:
            value = getattr(record, name)
            if name == "plugin_options":
                continue
            if name in ("engine", "sampling_defaults"):
                yield from fields(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value

    return dict([*fields(settings), *fields(load)])


TEMPLATE = object()
KEYS = object()
WARM = object()
MAPPING: dict[str, tuple[Any, str, Any]] = {
    "--state-dir": ("state", "state_dir", Path("state")),
    "--host": ("0.0.0.0", "host", "0.0.0.0"),
    "--port": ("9000", "port", 9000),
    "--api-key": ("secret", "api_keys", (ApiKey("secret"),)),
    "--api-key-file": (KEYS, "api_keys", (ApiKey("secret", "alice"),)),
    "--rate-limit": ("60", "rate_limit", 60),
    "--uds": ("a.sock", "uds", Path("a.sock")),
    "--ssl-certfile": ("cert.pem", "ssl_certfile", Path("cert.pem")),
    "--ssl-keyfile": ("key.pem", "ssl_keyfile", Path("key.pem")),
    "--allowed-host": ("Models.example", "allowed_hosts", ("models.example",)),
    "--cors-origin": ("http://localhost:3000", "cors_origins", ("http://localhost:3000",)),
    "--log-format": ("json", "log_format", "json"),
    "--served-model-name": ("mine", "served_model_name", "mine"),
    "--protocol": ("openai", "protocols", ("openai",)),
    "--timeout": ("1.5", "timeout_s", 1.5),
    "--drain-timeout": ("0", "drain_timeout_s", 0.0),
    "--max-body-mb": ("2", "max_body_bytes", 2 * 1024 * 1024),
    "--log-level": ("debug", "log_level", "debug"),
    "--max-num-seqs": ("4", "engine.max_num_seqs", 4),
    "--max-queue": ("0", "engine.max_queue", 0),
    "--decode-stall-target-ms": ("40", "engine.decode_stall_target_ms", 40.0),
    "--scheduling-policy": ("fair", "engine.scheduling_policy", "fair"),
    "--max-num-batched-tokens": ("512", "engine.max_num_batched_tokens", 512),
    "--max-model-len": ("4096", "engine.max_model_len", 4096),
    "--max-tokens": ("100", "sampling_defaults.max_tokens", 100),
    "--max-request-tokens": ("200", "max_request_tokens", 200),
    "--max-completions": ("3", "max_completions", 3),
    "--gpu-memory-utilization": ("0.5", "engine.memory_share", 0.5),
    "--max-kv-size": ("512", "engine.max_kv_size", 512),
    "--kv-bits": ("4", "engine.kv_bits", 4),
    "--enforce-eager": (None, "engine.enforce_eager", True),
    "--skip-self-test": (None, "engine.self_test", False),
    "--cache": ("lru:a=1", "engine.cache", "lru:a=1"),
    "--cache-memory-mb": ("3", "engine.cache_memory_bytes", 3 * 1024 * 1024),
    "--cache-memory-percent": ("0.5", "engine.cache_memory_share", 0.5),
    "--cache-isolation": ("key", "cache_isolation", "key"),
    "--warm-prompts": (WARM, "warm_prompts", (Chat(messages=[{"role": "system", "content": "Hi"}]),)),
    "--kv-cache-quantization": (None, "engine.kv_cache_quantization", KVQuantization()),
    "--default-temperature": ("0", "sampling_defaults.temperature", 0.0),
    "--default-top-p": ("0.5", "sampling_defaults.top_p", 0.5),
    "--default-top-k": ("-1", "sampling_defaults.top_k", -1),
    "--default-min-p": ("0.1", "sampling_defaults.min_p", 0.1),
    "--default-presence-penalty": ("-1", "sampling_defaults.presence_penalty", -1.0),
    "--default-frequency-penalty": ("2", "sampling_defaults.frequency_penalty", 2.0),
    "--default-repetition-penalty": ("1.1", "sampling_defaults.repetition_penalty", 1.1),
    "--default-chat-template-kwargs": ('{"enable_thinking": false}', "template_kwargs", {"enable_thinking": False}),
    "--tool-call-parser": ("hermes", "tool_parser", "hermes"),
    "--reasoning-parser": ("none", "reasoning_parser", "none"),
    "--no-validate-tool-calls": (None, "validate_tool_calls", False),
    "--repair-tool-calls": (None, "repair_tool_calls", True),
    "--reasoning-fields": ("reasoning", "reasoning_fields", "reasoning"),
    "--revision": ("v2", "revision", "v2"),
    "--download-timeout": ("5", "download_timeout_s", 5.0),
    "--download-retries": ("0", "download_retries", 0),
    "--offline": (None, "offline", True),
    "--trust-remote-code": (None, "trust_remote_code", True),
    "--dtype": ("bfloat16", "dtype", "bfloat16"),
    "--chat-template": (TEMPLATE, "chat_template", "{{ messages }}"),
}
OF_QUANTIZATION: dict[str, tuple[str, KVQuantization]] = {
    "--kv-cache-quantization-bits": ("4", KVQuantization(bits=4)),
    "--kv-cache-quantization-group-size": ("32", KVQuantization(group_size=32)),
    "--kv-cache-min-quantize-tokens": ("0", KVQuantization(min_tokens=0)),
}
ACCEPTED_WITHOUT_EFFECT = {"--enable-auto-tool-choice"}


@pytest.mark.parametrize("option", MAPPING)
def test_an_option_sets_exactly_its_own_setting(option, tmp_path):
    value, field, expected = MAPPING[option]
    if value is TEMPLATE:
        value = str(tmp_path / "template.jinja")
        (tmp_path / "template.jinja").write_text("{{ messages }}", encoding="utf-8")
    if value is KEYS:
        value = str(tmp_path / "keys")
        (tmp_path / "keys").write_text("alice:secret\n", encoding="utf-8")
    if value is WARM:
        value = str(tmp_path / "warm.json")
        (tmp_path / "warm.json").write_text('[[{"role": "system", "content": "Hi"}]]', encoding="utf-8")
    before = flatten(*parse()[1:])
    after = flatten(*parse(option, *([] if value is None else [value]))[1:])
    assert {name: after[name] for name in after if after[name] != before[name]} == {field: expected}


@pytest.mark.parametrize("option", OF_QUANTIZATION)
def test_an_option_says_how_to_quantise(option):
    value, expected = OF_QUANTIZATION[option]
    assert parse("--kv-cache-quantization", option, value)[1].engine.kv_cache_quantization == expected


def test_the_group_size_of_running_states_is_set():
    assert parse("--kv-bits", "4", "--kv-group-size", "32")[1].engine.kv_group_size == 32


@pytest.mark.parametrize(
    ("option", "needed"), [*((o, "--kv-cache-quantization") for o in OF_QUANTIZATION), ("--kv-group-size", "--kv-bits")]
)
def test_an_option_without_the_one_that_gives_it_a_sense_is_refused(option, needed):
    value = "32" if option == "--kv-group-size" else OF_QUANTIZATION[option][0]
    with pytest.raises(UsageError, match=f"^{option} needs {needed}\\.$"):
        parse(option, value)


def test_the_cache_has_one_budget():
    with pytest.raises(UsageError, match="--cache-memory-mb and --cache-memory-percent"):
        parse("--cache-memory-mb", "3", "--cache-memory-percent", "0.2")


@pytest.mark.parametrize(
    "argv",
    [
        ("--kv-bits", "8", "--max-kv-size", "512"),
        ("--kv-bits", "8", "--kv-cache-quantization"),
    ],
)
def test_two_ways_to_keep_states_exclude_each_other(argv):
    with pytest.raises(UsageError, match="--kv-bits"):
        parse(*argv)


@pytest.mark.parametrize(
    "argv",
    [("--max-kv-size", "63"), ("--max-kv-size", "99999999999"), ("--kv-bits", "3"), ("--gpu-memory-utilization", "0")],
)
def test_values_without_a_sense_are_refused(argv):
    with pytest.raises(SystemExit):
        parse(*argv)


def test_every_option_is_covered_by_the_mapping():
    covered = {*MAPPING, *OF_QUANTIZATION, *ACCEPTED_WITHOUT_EFFECT, "--kv-group-size", "--fair-share", "--help"}
    for action in parser()._actions:
        assert not action.option_strings or covered & set(action.option_strings), action.option_strings
    assert covered <= {option for action in parser()._actions for option in action.option_strings}


def test_options_without_an_effect_say_so():
    for action in parser()._actions:
        if set(action.option_strings) & ACCEPTED_WITHOUT_EFFECT:
            assert "accepted" in (action.help or "")


def test_no_options_give_the_defaults_of_the_api():
    _, settings, load = parse()
    state_dir = serve_settings.default_state_dir()
    assert flatten(settings, load) == flatten(Settings(state_dir=Path(state_dir)), LoadOptions())


def test_state_is_kept_where_programs_of_the_user_keep_theirs(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert parse()[1].state_dir == Path("/elsewhere/vllm-mlx")
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert parse()[1].state_dir == Path("/home/somebody/.local/state/vllm-mlx")


def test_every_option_has_a_help_text_that_can_be_printed():
    assert all(action.help for action in parser()._actions)
    assert "--max-num-batched-tokens N" in parser().format_help()


def test_the_model_is_optional():
    assert parse()[0].model is None
    assert parse("org/model", "--port", "0")[0].model == "org/model"


def test_keys_and_protocols_may_be_repeated():
    settings = parse("--api-key", "a", "--api-key", "b", "--api-key", "a", "--protocol", "x", "--protocol", "y")[1]
    assert (settings.api_keys, settings.protocols) == ((ApiKey("a"), ApiKey("b")), ("x", "y"))


def test_the_key_of_the_environment_is_used_unless_one_is_given(monkeypatch):
    monkeypatch.setenv("VLLM_MLX_API_KEY", "from-environment\n")
    assert parse()[1].api_keys == (ApiKey("from-environment"),)
    assert parse("--api-key", "given")[1].api_keys == (ApiKey("given"),)


def test_an_empty_key_in_the_environment_does_not_open_the_server(monkeypatch):
    monkeypatch.setenv("VLLM_MLX_API_KEY", "")
    with pytest.raises(UsageError, match="VLLM_MLX_API_KEY is set but empty"):
        parse()


def test_the_key_of_the_environment_has_no_name_as_clients_send_it_as_it_is(monkeypatch):
    monkeypatch.setenv("VLLM_MLX_API_KEY", "alice:key")
    assert parse()[1].api_keys == (ApiKey("alice:key"),)


def test_settings_never_show_a_key_nor_hand_one_to_plugins(tmp_path):
    file = tmp_path / "keys"
    file.write_text("whisper\n", encoding="utf-8")
    settings = parse("--api-key", "alice:hush", "--api-key-file", str(file))[1]
    assert settings.api_keys == (ApiKey("hush", "alice"), ApiKey("whisper"))
    assert not {"hush", "whisper"} & set(re.findall(r"\w+", repr(settings)))
    assert not {"api_key", "api_key_file"} & set(settings.plugin_options)


def test_a_file_of_keys_that_fails_does_not_open_the_server(tmp_path, monkeypatch):
    monkeypatch.delenv("VLLM_MLX_API_KEY", raising=False)
    with pytest.raises(UsageError, match="cannot read"):
        parse("--api-key-file", str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nobody\n\n", encoding="utf-8")
    with pytest.raises(UsageError, match="holds no key"):
        parse("--api-key-file", str(tmp_path / "empty"))


def test_a_reasoning_parser_named_auto_is_chosen_and_the_tool_parser_auto_is_a_parser():
    settings = parse("--tool-call-parser", "auto", "--reasoning-parser", "auto")[1]
    assert (settings.tool_parser, settings.reasoning_parser) == ("auto", None)


def test_a_default_above_the_limit_is_refused():
    with pytest.raises(UsageError, match=r"--max-tokens 9 .* --max-request-tokens 8"):
        parse("--max-tokens", "9", "--max-request-tokens", "8")


def test_options_of_plugins_reach_them():
    own = parser()
    own.add_argument("--quota")
    args = own.parse_args(["--quota", "5"])
    assert serve_settings.to_settings(args).plugin_options["quota"] == "5"


@pytest.mark.parametrize(
    "argv",
    [
        ["--port", "65536"],
        ["--port", "http"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--max-num-seqs", "0"],
        ["--default-top-p", "0"],
        ["--default-chat-template-kwargs", "[]"],
        ["--chat-template", "/no/such/file"],
        ["--cache", "lru:x"],
        ["--dtype", "int4"],
        ["--api-key", ""],
        ["--api-key", "alice:"],
        ["--api-key", "key-2:x"],
        ["--rate-limit", "-1"],
        ["--allowed-host", "http://a.example"],
        ["--allowed-host", "a.example:80"],
        ["--cors-origin", "https://a.example/"],
        ["--cors-origin", "a.example"],
        ["--cors-origin", "null"],
        ["--log-format", "xml"],
        ["--log-level", "loud"],
    ],
    ids=" ".join,
)
def test_a_bad_value_ends_with_code_2_and_one_line_that_names_the_option(argv, capsys):
    with pytest.raises(SystemExit) as exit:
        parse(*argv)
    error = capsys.readouterr().err.splitlines()
    assert exit.value.code == 2
    assert len(error) == 2  # the usage in short, and the error
    assert error[1].startswith(f"vllm-mlx serve: error: argument {argv[0]}: ")


def test_shares_are_weights_by_name_and_need_the_policy_that_deals_them_out():
    keys = ("--api-key", "alice:secret-of-alice", "--api-key", "secret-of-nobody")
    argv = (*keys, "--scheduling-policy", "fair", "--fair-share", "alice=2", "--fair-share", "key-2=0.5")
    assert parse(*argv)[1].engine.fair_shares == {"alice": 2.0, "key-2": 0.5}
    with pytest.raises(UsageError, match="no API key has the name bob"):
        parse(*argv, "--fair-share", "bob=3")
    with pytest.raises(UsageError, match="--scheduling-policy fair"):
        parse("--fair-share", "alice=2")


@pytest.mark.parametrize("share", ["alice", "alice=", "=2", "alice=0", "alice=-1", "alice=inf", "alice=two"])
def test_a_share_that_is_none_is_refused(share, capsys):
    with pytest.raises(SystemExit):
        parse("--scheduling-policy", "fair", "--fair-share", share)
    assert "--fair-share" in capsys.readouterr().err
