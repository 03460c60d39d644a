"""Options of ``serve``, by group."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction

from vllm_mlx_core.api import EngineSettings, KVQuantization, Settings

from . import keys, values
from .options import add_reasoning_parser
from .serve_settings import MIB, default_state_dir

LOG_LEVELS = ("debug", "info", "warning", "error")
SCHEDULING_POLICIES = ("fcfs", "priority", "fair")
LOG_FORMATS = ("text", "json")
MAX_WINDOW = 2**31 - 1
"""MLX counts positions in 32 bits."""

_settings = Settings()
_engine = EngineSettings()
_quantization = KVQuantization()


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
        f"(default: ${keys.VARIABLE}, else no key is needed)",
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


def add_output(parser: ArgumentParser) -> None:
    """Declare how the model's output is taken apart, and the template variables that shape it."""
    group = parser.add_argument_group("output parsing")
    group.add_argument(
        "--tool-call-parser",
        metavar="NAME",
        type=values.name,
        help='parser of tool calls, or "none"; "auto" reads many formats (default: the one that the model was taught)',
    )
    add_reasoning_parser(group)
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
        "--decode-stall-target-ms",
        metavar="MS",
        type=values.number(0),
        default=_engine.decode_stall_target_ms,
        help="how long running streams may wait for their next token while prompts are read; 0 is any time "
        "(default: %(default)g)",
    )
    group.add_argument(
        "--scheduling-policy",
        choices=SCHEDULING_POLICIES,
        default=_engine.scheduling_policy,
        help="who goes first: who came first, lower priority, or within a priority whose API key has had fewer tokens "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--fair-share",
        metavar="NAME=WEIGHT",
        action="append",
        type=values.weight,
        default=[],
        help="weight of an API key's name under the policy fair; repeat for several (default: 1 for each name)",
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
        "--gpu-memory-utilization",
        metavar="SHARE",
        type=values.number(0, 1, above=True),
        default=_engine.memory_share,
        help="share of the device's memory that weights, running sequences and prefix cache may have together "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--max-kv-size",
        metavar="TOKENS",
        type=values.integer(64, MAX_WINDOW),
        help="tokens of a sequence that are remembered, the first four and the latest; bounds its memory, and what was "
        "said before them is forgotten (default: all)",
    )
    group.add_argument(
        "--kv-bits",
        type=int,
        choices=(4, 8),
        help="quantise keys and values of running sequences: less memory, slightly different answers (default: off)",
    )
    group.add_argument(
        "--kv-group-size",
        type=int,
        choices=(32, 64, 128),
        help="values that share a scale with --kv-bits; the width of a head must be a multiple of it "
        f"(default: {_engine.kv_group_size})",
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
        help="memory for the prefix cache, in MiB, instead of --cache-memory-percent (default: see there)",
    )
    group.add_argument(
        "--cache-memory-percent",
        metavar="SHARE",
        type=values.number(0, 1, above=True),
        help=f"memory for the prefix cache, as a share of the machine's (default: {_engine.cache_memory_share})",
    )
    group.add_argument(
        "--cache-isolation",
        choices=("none", "key"),
        default=_settings.cache_isolation,
        help="key: prompts share cached beginnings only with those of the same API key (default: %(default)s)",
    )
    group.add_argument(
        "--warm-prompts",
        metavar="FILE",
        type=values.name,
        help="JSON list of message arrays whose beginnings are read into the cache after the start, and again after it "
        "was cleared",
    )
    group.add_argument(
        "--kv-cache-quantization",
        action="store_true",
        help="quantise the keys and values that are stored: less memory, slightly different answers after a reuse",
    )
    group.add_argument(
        "--kv-cache-quantization-bits",
        type=int,
        choices=(4, 8),
        help=f"bits of a quantised value (default: {_quantization.bits})",
    )
    group.add_argument(
        "--kv-cache-quantization-group-size",
        type=int,
        choices=(32, 64, 128),
        help="values that share a scale; the width of a head must be a multiple of it "
        f"(default: {_quantization.group_size})",
    )
    group.add_argument(
        "--kv-cache-min-quantize-tokens",
        metavar="TOKENS",
        type=values.integer(0),
        help=f"states of fewer tokens are not quantised (default: {_quantization.min_tokens})",
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
        ("repetition-penalty", values.number(0.01), "1 is off"),
    ):
        group.add_argument(f"--default-{option}", metavar="X", type=convert, help=what)
