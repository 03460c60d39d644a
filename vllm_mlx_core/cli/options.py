"""Options that commands share, by group, and what the parsed ones become: ``Settings`` and ``LoadOptions``.

Defaults live in ``vllm_mlx_core.api`` only, so that the command line and the Python interface cannot differ.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_mlx_core.api import (
    ApiKey,
    EngineSettings,
    LoadOptions,
    Progress,
    SamplingParams,
    Settings,
    UsageError,
    no_progress,
)

from . import keys, values

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

API_KEY_VARIABLE = "VLLM_MLX_API_KEY"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
MIB = 1024 * 1024

_settings = Settings()
_engine = EngineSettings()
_load = LoadOptions()


def add_model(parser: ArgumentParser, what: str) -> None:
    """Declare the optional positional MODEL; ``what`` is the verb phrase of its help."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        type=values.name,
        help=f"model to {what}: a folder, a .gguf file or a hub id; without it, the small built-in demonstration model",
    )


def add_loading(parser: ArgumentParser) -> None:
    """Declare how a model is found and loaded."""
    group = parser.add_argument_group("finding and loading the model")
    group.add_argument("--revision", metavar="REV", type=values.name, help="branch, tag or commit on the hub")
    group.add_argument(
        "--download-timeout",
        metavar="SECONDS",
        type=values.number(0, above=True),
        default=_load.download_timeout_s,
        help="give up on one file's download after this long without an answer (default: %(default)g)",
    )
    group.add_argument(
        "--download-retries",
        metavar="N",
        type=values.integer(0),
        default=_load.download_retries,
        help="further attempts after a failed download (default: %(default)s)",
    )
    group.add_argument("--offline", action="store_true", help="use only what is on this machine; never ask the hub")
    group.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the checkpoint; only for checkpoints you trust",
    )
    group.add_argument(
        "--dtype",
        choices=("float32", "float16", "bfloat16"),
        help="precision of the weights (default: as stored; float32 on a CPU)",
    )
    group.add_argument(
        "--chat-template",
        metavar="FILE",
        type=values.text_file,
        help="Jinja file that replaces the checkpoint's chat template",
    )


def add_output(parser: ArgumentParser) -> None:
    """Declare how the model's output is taken apart, and the template variables that shape it."""
    group = parser.add_argument_group("output parsing")
    group.add_argument(
        "--tool-call-parser",
        metavar="NAME",
        type=values.name,
        help='parser of tool calls, or "none"; "auto" reads many formats (default: the one that the model was taught)',
    )
    _add_reasoning_parser(group)
    group.add_argument(
        "--enable-auto-tool-choice",
        action="store_true",
        help="accepted for scripts written for other servers: the model may always call tools that the client offers",
    )
    group.add_argument(
        "--validate-tool-calls",
        action=BooleanOptionalAction,
        default=_settings.validate_tool_calls,
        help="check calls against their tools' schemas; log and count those that do not fit (default: on)",
    )
    group.add_argument(
        "--repair-tool-calls",
        action=BooleanOptionalAction,
        default=_settings.repair_tool_calls,
        help="coerce obviously mistyped values in calls; arguments are then sent when their call ends (default: off)",
    )
    group.add_argument(
        "--reasoning-fields",
        choices=("both", "reasoning", "reasoning_content"),
        default=_settings.reasoning_fields,
        help="which fields of OpenAI answers hold the reasoning (default: %(default)s)",
    )
    group.add_argument(
        "--default-chat-template-kwargs",
        metavar="JSON",
        type=values.json_object,
        default={},
        help="chat template variables for requests that do not set them, such as '{\"enable_thinking\": false}'",
    )


def add_reasoning(parser: ArgumentParser) -> None:
    """Declare how reasoning is told from the answer, for commands that offer the model no tools."""
    _add_reasoning_parser(parser.add_argument_group("output parsing"))


def _add_reasoning_parser(group: _ArgumentGroup) -> None:
    group.add_argument(
        "--reasoning-parser",
        metavar="NAME",
        type=values.name,
        help='parser of reasoning, "none", or "auto", the default, to choose by the model',
    )


def add_sampling(parser: ArgumentParser) -> None:
    """Declare the sampling values of a command that asks a model itself."""
    group = parser.add_argument_group("sampling", "What is not said here is left to the model.")
    group.add_argument(
        "--max-tokens",
        metavar="TOKENS",
        type=values.integer(1),
        help="longest answer (default: what the context leaves)",
    )
    group.add_argument("--temperature", metavar="X", type=values.number(0), help="0 always takes the most likely token")
    group.add_argument("--top-p", metavar="X", type=values.number(0, 1, above=True), help="1 is off")
    group.add_argument(
        "--seed", metavar="N", type=values.integer(0, 2**63 - 1), help="makes answers repeatable (default: random)"
    )
    group.add_argument(
        "--chat-template-kwargs",
        metavar="JSON",
        type=values.json_object,
        default={},
        help="chat template variables, such as '{\"enable_thinking\": false}'",
    )


def add_network(parser: ArgumentParser) -> None:
    """Declare where the server listens, for whom, and for how long."""
    group = parser.add_argument_group("network")
    group.add_argument(
        "--host",
        metavar="ADDRESS",
        type=values.name,
        default=_settings.host,
        help="address to listen on; 0.0.0.0 opens the server to the network (default: %(default)s)",
    )
    group.add_argument(
        "--port",
        metavar="PORT",
        type=values.integer(0, 65535),
        default=_settings.port,
        help="port to listen on; 0 takes a free one (default: %(default)s)",
    )
    group.add_argument(
        "--uds",
        metavar="PATH",
        type=values.name,
        help="Unix socket to listen on instead of a port, for this user's programs only",
    )
    group.add_argument(
        "--ssl-certfile",
        metavar="FILE",
        type=values.name,
        help="certificate (and its chain) in PEM form: serves https instead of http",
    )
    group.add_argument("--ssl-keyfile", metavar="FILE", type=values.name, help="key of the certificate, in PEM form")
    group.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        type=values.host_name,
        default=[],
        help="host name that clients may use beside those of loopback, when others are refused; repeat for several "
        "(default: a server on loopback answers to loopback names only, others to any name)",
    )
    group.add_argument(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        type=values.origin,
        default=[],
        help="origin of web pages that may use the server, such as http://localhost:3000, or *; repeat for several "
        "(default: none)",
    )
    group.add_argument(
        "--api-key",
        metavar="[NAME:]KEY",
        action="append",
        type=keys.api_key,
        default=[],
        help="key that clients must send, and whose it is, for accounting; repeat for several "
        f"(default: ${API_KEY_VARIABLE}, else no key is needed)",
    )
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        type=values.name,
        help="file with further keys, one [NAME:]KEY a line, # begins a comment line",
    )
    group.add_argument(
        "--rate-limit",
        metavar="N",
        type=values.integer(0),
        default=_settings.rate_limit,
        help="most requests per minute for each key, or each client address if no key is needed; more are refused with "
        "status 429; 0 is no limit (default: %(default)s)",
    )
    group.add_argument(
        "--served-model-name",
        metavar="NAME",
        type=values.name,
        help='name that clients use for the model, beside "default" (default: the model as it was named here)',
    )
    group.add_argument(
        "--protocol",
        metavar="NAME",
        action="append",
        type=values.name,
        default=[],
        help="serve only this protocol; repeat for several (default: every installed one)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=values.number(0, above=True),
        default=_settings.timeout_s,
        help="longest a request may take, waiting included (default: %(default)g)",
    )
    group.add_argument(
        "--drain-timeout",
        metavar="SECONDS",
        type=values.number(0),
        default=_settings.drain_timeout_s,
        help="how long running requests may go on after SIGTERM (default: %(default)g)",
    )
    group.add_argument(
        "--max-body-mb",
        metavar="MIB",
        type=values.integer(1),
        default=_settings.max_body_bytes // MIB,
        help="largest request body, in MiB (default: %(default)s)",
    )
    group.add_argument(
        "--state-dir",
        metavar="DIR",
        type=values.name,
        default=default_state_dir(),
        help="folder for what outlives the server, such as stored responses (default: $XDG_STATE_HOME/vllm-mlx, "
        "else ~/.local/state/vllm-mlx)",
    )
    group.add_argument("--log-level", choices=LOG_LEVELS, default=_settings.log_level, help="default: %(default)s")
    group.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default=_settings.log_format,
        help="json writes one object a line (default: %(default)s)",
    )


def add_scheduling(parser: ArgumentParser) -> None:
    """Declare the limits of the engine."""
    group = parser.add_argument_group("batching and limits")
    group.add_argument(
        "--max-num-seqs",
        metavar="N",
        type=values.integer(1),
        default=_engine.max_num_seqs,
        help="most sequences that run together (default: %(default)s)",
    )
    group.add_argument(
        "--max-queue",
        metavar="N",
        type=values.integer(0),
        default=_engine.max_queue,
        help="most sequences that wait; more are refused with status 503 (default: %(default)s)",
    )
    group.add_argument(
        "--max-num-batched-tokens",
        metavar="N",
        type=values.integer(1),
        default=_engine.max_num_batched_tokens,
        help="most tokens that one step reads, prefill and decode together (default: %(default)s)",
    )
    group.add_argument(
        "--max-model-len",
        metavar="TOKENS",
        type=values.integer(1),
        help="longest prompt and output together (default: what the checkpoint allows)",
    )
    group.add_argument(
        "--max-tokens",
        metavar="TOKENS",
        type=values.integer(1),
        help="output limit for requests that set none (default: the rest of the context)",
    )
    group.add_argument(
        "--max-request-tokens",
        metavar="TOKENS",
        type=values.integer(1),
        help="largest output limit that a client may set (default: the context length)",
    )
    group.add_argument(
        "--max-completions",
        metavar="N",
        type=values.integer(1),
        default=_settings.max_completions,
        help="most completions of one prompt that a client may ask for (default: %(default)s)",
    )
    group.add_argument(
        "--enforce-eager",
        action="store_true",
        help="build every decode step anew instead of capturing it once and replaying it",
    )
    group.add_argument(
        "--skip-self-test",
        action="store_true",
        help="start without comparing batched with single output; models that cannot batch may answer wrongly, "
        "and decode steps are not captured",
    )


def add_cache(parser: ArgumentParser) -> None:
    """Declare the prefix cache."""
    group = parser.add_argument_group("prefix cache")
    group.add_argument(
        "--cache",
        metavar="NAME[:K=V,…]",
        type=values.cache,
        help='cache policy and its options; "off" keeps nothing (default: chosen by the model)',
    )
    group.add_argument(
        "--cache-memory-mb",
        metavar="MIB",
        type=values.integer(1),
        help="memory for the prefix cache, in MiB (default: a fifth of the machine's)",
    )


def add_sampling_defaults(parser: ArgumentParser) -> None:
    """Declare the sampling values for requests that set none."""
    group = parser.add_argument_group(
        "sampling defaults", "They win over the checkpoint's own and yield to what a request says."
    )
    for option, convert, what in (
        ("temperature", values.number(0), "0 always takes the most likely token"),
        ("top-p", values.number(0, 1, above=True), "1 is off"),
        ("top-k", values.integer(-1), "0 or -1 is off"),
        ("min-p", values.number(0, 1), "0 is off"),
        ("presence-penalty", values.number(-2, 2), "0 is off"),
        ("frequency-penalty", values.number(-2, 2), "0 is off"),
        ("repetition-penalty", values.number(0, above=True), "1 is off"),
    ):
        group.add_argument(f"--default-{option}", metavar="X", type=convert, help=what)


def load_options(args: Namespace, progress: Progress = no_progress) -> LoadOptions:
    """Return what ``add_loading`` declared."""
    return LoadOptions(
        revision=args.revision,
        offline=args.offline,
        trust_remote_code=args.trust_remote_code,
        download_timeout_s=args.download_timeout,
        download_retries=args.download_retries,
        dtype=args.dtype,
        chat_template=args.chat_template,
        progress=progress,
    )


def sampling_params(args: Namespace) -> SamplingParams:
    """Return what ``add_sampling`` declared, for a model in this process."""
    return SamplingParams(max_tokens=args.max_tokens, temperature=args.temperature, top_p=args.top_p, seed=args.seed)


def sampling_body(args: Namespace) -> dict[str, Any]:
    """Return what ``add_sampling`` declared, as fields of a request to a server; what was not said is left out."""
    fields = {
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "seed": args.seed,
        "chat_template_kwargs": args.chat_template_kwargs or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def serve_settings(args: Namespace) -> Settings:
    """Return what the other groups declared.

    Reads the environment for an API key, and the file of keys. Raises UsageError for values that contradict each other
    and for keys that cannot be read.
    """
    limit = args.max_request_tokens
    if limit is not None and (args.max_tokens or 0) > limit:
        raise UsageError(
            f"--max-tokens {args.max_tokens} is larger than --max-request-tokens {limit}: the default would be refused."
        )
    return Settings(
        host=args.host,
        port=args.port,
        uds=_path(args.uds),
        ssl_certfile=_path(args.ssl_certfile),
        ssl_keyfile=_path(args.ssl_keyfile),
        allowed_hosts=tuple(dict.fromkeys(args.allowed_host)),
        cors_origins=tuple(dict.fromkeys(args.cors_origin)),
        api_keys=_api_keys(args.api_key, _path(args.api_key_file)),
        rate_limit=args.rate_limit,
        timeout_s=args.timeout,
        drain_timeout_s=args.drain_timeout,
        max_body_bytes=args.max_body_mb * MIB,
        max_request_tokens=args.max_request_tokens,
        max_completions=args.max_completions,
        served_model_name=args.served_model_name,
        protocols=tuple(args.protocol),
        state_dir=Path(args.state_dir),
        log_level=args.log_level,
        log_format=args.log_format,
        tool_parser=args.tool_call_parser,
        reasoning_parser=unless_auto(args.reasoning_parser),
        validate_tool_calls=args.validate_tool_calls,
        repair_tool_calls=args.repair_tool_calls,
        reasoning_fields=args.reasoning_fields,
        sampling_defaults=SamplingParams(
            max_tokens=args.max_tokens,
            temperature=args.default_temperature,
            top_p=args.default_top_p,
            top_k=args.default_top_k,
            min_p=args.default_min_p,
            presence_penalty=args.default_presence_penalty,
            frequency_penalty=args.default_frequency_penalty,
            repetition_penalty=args.default_repetition_penalty,
        ),
        template_kwargs=args.default_chat_template_kwargs,
        engine=EngineSettings(
            max_num_seqs=args.max_num_seqs,
            max_queue=args.max_queue,
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_model_len=args.max_model_len,
            self_test=not args.skip_self_test,
            enforce_eager=args.enforce_eager,
            cache=args.cache,
            cache_memory_bytes=None if args.cache_memory_mb is None else args.cache_memory_mb * MIB,
        ),
        plugin_options={name: value for name, value in vars(args).items() if name not in ("api_key", "api_key_file")},
    )


def default_state_dir() -> str:
    """Return where programs of this user keep what outlives them. Makes nothing."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "vllm-mlx")


def environment_api_key() -> str | None:
    """Return the API key of the environment. Raises UsageError for an empty one, which must not open a server."""
    key = os.environ.get(API_KEY_VARIABLE)
    if key is None:
        return None
    if not key.strip():
        raise UsageError(f"{API_KEY_VARIABLE} is set but empty: give it a key, or unset it to go without one.")
    return key.strip()


def _api_keys(given: list[ApiKey], file: Path | None) -> tuple[ApiKey, ...]:
    if given or file is not None:
        return keys.distinct([*given, *(keys.read(file) if file is not None else ())])
    key = environment_api_key()  # as clients send it, so it has no name
    return () if key is None else (ApiKey(key),)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(os.path.expanduser(text))


def unless_auto(parser: str | None) -> str | None:
    """Return the name of a parser, or None where it shall be chosen."""
    return None if parser == "auto" else parser
