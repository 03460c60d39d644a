"""From the parsed options of ``serve`` to its ``Settings``."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TypeVar

from vllm_mlx_core.api import ApiKey, Chat, EngineSettings, KVQuantization, SamplingParams, Settings, UsageError

from . import keys, warm_prompts
from .options import unless_auto

MIB = 1024 * 1024

T = TypeVar("T")

_engine = EngineSettings()
_stored = KVQuantization()


def to_settings(args: Namespace) -> Settings:
    """Return what the other groups declared.

    Reads the environment for an API key, and the files of keys and of prompts. Raises UsageError for values that
    contradict each other and for files that cannot be read.
    """
    limit = args.max_request_tokens
    if limit is not None and (args.max_tokens or 0) > limit:
        raise UsageError(
            f"--max-tokens {args.max_tokens} is larger than --max-request-tokens {limit}: the default would be refused."
        )
    shares = dict(args.fair_share)
    if shares and args.scheduling_policy != "fair":
        raise UsageError("--fair-share needs --scheduling-policy fair.")
    api_keys = _api_keys(args.api_key, _path(args.api_key_file))
    if unknown := shares.keys() - {key.user(number) for number, key in enumerate(api_keys, 1)}:
        raise UsageError(f"--fair-share: no API key has the name {min(unknown)}.")
    if args.warm_prompts is not None and args.cache_isolation == "key" and api_keys:
        raise UsageError("--warm-prompts needs --cache-isolation none: no key would share what was read for nobody.")
    _check_company(args)
    if args.kv_bits is not None and args.max_kv_size is not None:
        raise UsageError("--kv-bits and --max-kv-size cannot be used together: windows are not quantised.")
    if args.kv_bits is not None and args.kv_cache_quantization:
        raise UsageError("--kv-bits already quantises what is stored: leave out --kv-cache-quantization.")
    if args.cache_memory_mb is not None and args.cache_memory_percent is not None:
        raise UsageError(
            "--cache-memory-mb and --cache-memory-percent cannot be used together: each is the whole budget."
        )
    return Settings(
        host=args.host,
        port=args.port,
        uds=_path(args.uds),
        ssl_certfile=_path(args.ssl_certfile),
        ssl_keyfile=_path(args.ssl_keyfile),
        allowed_hosts=tuple(dict.fromkeys(args.allowed_host)),
        cors_origins=tuple(dict.fromkeys(args.cors_origin)),
        api_keys=api_keys,
        rate_limit=args.rate_limit,
        timeout_s=args.timeout,
        drain_timeout_s=args.drain_timeout,
        max_body_bytes=args.max_body_mb * MIB,
        max_request_tokens=args.max_request_tokens,
        max_completions=args.max_completions,
        served_model_name=args.served_model_name,
        protocols=tuple(args.protocol),
        cache_isolation=args.cache_isolation,
        warm_prompts=_warm_prompts(_path(args.warm_prompts)),
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
            decode_stall_target_ms=args.decode_stall_target_ms,
            scheduling_policy=args.scheduling_policy,
            fair_shares=shares,
            max_model_len=args.max_model_len,
            memory_share=args.gpu_memory_utilization,
            max_kv_size=args.max_kv_size,
            kv_bits=args.kv_bits,
            kv_group_size=_given(args.kv_group_size, _engine.kv_group_size),
            self_test=not args.skip_self_test,
            enforce_eager=args.enforce_eager,
            cache=args.cache,
            cache_memory_bytes=None if args.cache_memory_mb is None else args.cache_memory_mb * MIB,
            cache_memory_share=_given(args.cache_memory_percent, _engine.cache_memory_share),
            kv_cache_quantization=_quantization(args),
        ),
        plugin_options={name: value for name, value in vars(args).items() if name not in ("api_key", "api_key_file")},
    )


def default_state_dir() -> str:
    """Return where programs of this user keep what outlives them. Makes nothing."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "vllm-mlx")


def _quantization(args: Namespace) -> KVQuantization | None:
    if not args.kv_cache_quantization:
        return None
    return KVQuantization(
        bits=_given(args.kv_cache_quantization_bits, _stored.bits),
        group_size=_given(args.kv_cache_quantization_group_size, _stored.group_size),
        min_tokens=_given(args.kv_cache_min_quantize_tokens, _stored.min_tokens),
    )


def _check_company(args: Namespace) -> None:
    """Raise UsageError for an option that was given without the one that gives it a sense."""
    for option, needed in (
        ("--kv-group-size", "--kv-bits"),
        ("--kv-cache-quantization-bits", "--kv-cache-quantization"),
        ("--kv-cache-quantization-group-size", "--kv-cache-quantization"),
        ("--kv-cache-min-quantize-tokens", "--kv-cache-quantization"),
    ):
        given, company = (getattr(args, name[2:].replace("-", "_")) for name in (option, needed))
        if given is not None and not company:
            raise UsageError(f"{option} needs {needed}.")


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _api_keys(given: list[ApiKey], file: Path | None) -> tuple[ApiKey, ...]:
    if given or file is not None:
        return keys.distinct([*given, *(keys.read(file) if file is not None else ())])
    key = keys.from_environment()  # as clients send it, so it has no name
    return () if key is None else (ApiKey(key),)


def _warm_prompts(file: Path | None) -> tuple[Chat, ...]:
    return () if file is None else tuple(warm_prompts.read(file))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(os.path.expanduser(text))
