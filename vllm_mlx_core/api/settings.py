"""What the operator asked for. Made once from the command line, then read everywhere and changed nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .messages import Chat, SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class KVQuantization:
    """How keys and values of states in the prefix cache are stored."""

    bits: Literal[4, 8] = 8
    group_size: int = 64
    """Values that share a scale: 32, 64 or 128."""
    min_tokens: int = 256
    """Shorter states are kept as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How an engine schedules. Token counts are per model."""

    max_num_seqs: int = 256
    """Most sequences that decode together."""
    max_queue: int = 1024
    """Most sequences that wait; more are refused with 503."""
    max_num_batched_tokens: int = 2048
    """Most tokens that one step reads, decode and prefill together."""
    decode_stall_target_ms: float = 100.0
    """How long a running stream may wait for its next token while prompts are read, in milliseconds; 0: any time.

    A step may read 16 tokens of prompts in any case.
    """
    scheduling_policy: Literal["fcfs", "priority", "fair"] = "priority"
    """Who goes first: by arrival, by priority and arrival, or by priority and what users have had."""
    fair_shares: Mapping[str, float] = field(default_factory=dict)
    """Weights of users (names of API keys) under ``fair``, above 0; a user that is not named has 1."""
    max_model_len: int | None = None
    """Context limit; None: the checkpoint's."""
    memory_share: float = 0.9
    """Share of the device's memory that weights, states and the prefix cache may have, above 0 and at most 1."""
    max_kv_size: int | None = None
    """Tokens that a sequence's layers look back on, the first four and the latest; None: all. Not with ``kv_bits``."""
    kv_bits: Literal[4, 8] | None = None
    """Bits of the keys and values of running sequences; None: they are kept as they are."""
    kv_group_size: int = 64
    """Values that share a scale with ``kv_bits``: 32, 64 or 128."""
    self_test: bool = True
    """Compare batched with solo output at load, and serve in the mode that is right."""
    enforce_eager: bool = False
    """Build every decode step anew instead of replaying captured ones."""
    cache: str | None = None
    """``NAME[:k=v,…]`` of the cache policy; None leaves it to ``vllm_mlx_choose_cache``."""
    cache_memory_bytes: int | None = None
    """Budget of the prefix cache; None: ``cache_memory_share`` of the machine's memory."""
    cache_memory_share: float = 0.2
    """Share of the machine's memory that the prefix cache may have, above 0 and at most 1."""
    kv_cache_quantization: KVQuantization | None = None
    """How stored states are quantised; None: they are kept as they are."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that lets a client in. It is never shown."""

    key: str = field(repr=False)
    name: str | None = None
    """Whom it belongs to, for accounting; None: it is called by its number. Keys of one name are one user's."""

    def user(self, number: int) -> str:
        """Return what its user is called if it is the ``number``-th of the keys, counted from 1."""
        return self.name or f"key-{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server's settings."""

    host: str = "127.0.0.1"
    port: int = 8000
    uds: Path | None = None
    """Unix socket to listen on instead of ``host`` and ``port``."""
    ssl_certfile: Path | None = None
    """PEM certificate to serve HTTPS with; needs ``ssl_keyfile``."""
    ssl_keyfile: Path | None = None
    allowed_hosts: Sequence[str] = ()
    """Names to answer to beside those of loopback; with any, no other name is answered to wherever one listens."""
    cors_origins: Sequence[str] = ()
    """Origins of web pages that may read the answers; ``*``: all."""
    api_keys: Sequence[str | ApiKey] = field(default=(), repr=False)
    rate_limit: int = 0
    """Most requests per minute and key, or client address if there are no keys; 0: any number."""
    timeout_s: float = 300.0
    """Longest a request may take, queue and generation together."""
    drain_timeout_s: float = 30.0
    """How long running requests may finish after SIGTERM."""
    max_body_bytes: int = 64 * 1024 * 1024
    max_request_tokens: int | None = None
    """Largest ``max_tokens`` a client may ask for; None: the context length."""
    max_completions: int = 128
    """Largest ``n`` a client may ask for."""
    served_model_name: str | None = None
    protocols: Sequence[str] = ()
    """Names of the protocol front-ends to serve; none: every installed one."""
    cache_isolation: Literal["none", "key"] = "none"
    """"key": a prompt shares cached beginnings only with those of the same API key."""
    warm_prompts: Sequence[Chat] = ()
    """Beginnings of conversations that the server reads into the default model's prefix cache before anybody asks."""
    state_dir: Path | None = None
    """Folder for what outlives the process, such as stored responses; None: nothing does."""
    log_level: str = "info"
    """debug, info, warning or error."""
    log_format: Literal["text", "json"] = "text"
    tool_parser: str | None = None
    """``--tool-call-parser``: a name, "none", or None to choose."""
    reasoning_parser: str | None = None
    validate_tool_calls: bool = True
    """Check finished calls against their tools' schemas; violations are logged and counted, and the calls delivered."""
    repair_tool_calls: bool = False
    """Coerce obviously mistyped scalars in arguments, which then wait for the end of their call."""
    reasoning_fields: Literal["both", "reasoning", "reasoning_content"] = "both"
    """Under which names OpenAI clients are sent reasoning."""
    sampling_defaults: SamplingParams = field(default_factory=SamplingParams)
    """The operator's defaults; they win over the checkpoint's and lose against the client's."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Chat-template variables for requests that do not say."""
    engine: EngineSettings = field(default_factory=EngineSettings)
    plugin_options: Mapping[str, Any] = field(default_factory=dict)
    """Every parsed command-line option by name, those of plugins included, but not the API keys and their file."""
